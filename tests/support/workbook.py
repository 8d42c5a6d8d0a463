"""Excel workbooks for tests, written without a library: cells are texts, numbers, truth values, dates, XML or None."""

import zipfile
from datetime import date, datetime
from xml.sax.saxutils import escape

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'

STYLES = (
    f'{HEAD}<styleSheet xmlns="{MAIN}"><fonts count="1"><font/></fonts><fills count="1"><fill/></fills>'
    '<borders count="1"><border/></borders><cellStyleXfs count="1"><xf/></cellStyleXfs>'
    '<cellXfs count="3"><xf numFmtId="0"/><xf numFmtId="14" applyNumberFormat="1"/>'
    '<xf numFmtId="22" applyNumberFormat="1"/></cellXfs></styleSheet>'
)


def write_workbook(path, tail="", **sheets):
    """Write a workbook with the rows of each sheet, followed by XML."""
    with zipfile.ZipFile(path, "w") as file:
        numbers = range(1, len(sheets) + 1)
        parts = "".join(
            f'<Override PartName="/xl/worksheets/sheet{k}.xml" '
            'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/>'
            for k in numbers
        )
        file.writestr(
            "[Content_Types].xml",
            f'{HEAD}<Types xmlns="{PACKAGE}/content-types"><Default Extension="rels" '
            'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            '<Default Extension="xml" ContentType="application/xml"/><Override PartName="/xl/workbook.xml" '
            'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/>'
            f"{parts}</Types>",
        )
        target = f'Type="{RELATIONS}/officeDocument" Target="xl/workbook.xml"'
        file.writestr("_rels/.rels", relationships(f'<Relationship Id="rId1" {target}/>'))
        names = "".join(
            f'<sheet name="{escape(n)}" sheetId="{k}" r:id="rId{k}"/>' for k, n in zip(numbers, sheets, strict=True)
        )
        file.writestr(
            "xl/workbook.xml",
            f'{HEAD}<workbook xmlns="{MAIN}" xmlns:r="{RELATIONS}"><sheets>{names}</sheets></workbook>',
        )
        links = "".join(
            f'<Relationship Id="rId{k}" Type="{RELATIONS}/worksheet" Target="worksheets/sheet{k}.xml"/>'
            for k in numbers
        )
        style = f'<Relationship Id="rId0" Type="{RELATIONS}/styles" Target="styles.xml"/>'
        file.writestr("xl/_rels/workbook.xml.rels", relationships(links + style))
        file.writestr("xl/styles.xml", STYLES)
        for k, rows in zip(numbers, sheets.values(), strict=True):
            lines = "".join(f'<row r="{n}">{"".join(map(cell_xml, row))}</row>' for n, row in enumerate(rows, 1))
            file.writestr(
                f"xl/worksheets/sheet{k}.xml",
                f'{HEAD}<worksheet xmlns="{MAIN}"><sheetData>{lines}</sheetData>{tail}</worksheet>',
            )
    return path


def relationships(content):
    return f'{HEAD}<Relationships xmlns="{PACKAGE}/relationships">{content}</Relationships>'


def cell_xml(value):
    if value is None:
        return "<c/>"
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, bool):
        return f'<c t="b"><v>{int(value)}</v></c>'
    if isinstance(value, str):
        return f'<c t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>'
    if isinstance(value, date):
        days = datetime.combine(value, datetime.min.time()) if not isinstance(value, datetime) else value
        style = 2 if isinstance(value, datetime) else 1
        return f'<c s="{style}"><v>{(days - datetime(1899, 12, 30)).total_seconds() / 86400}</v></c>'
    return f"<c><v>{value!r}</v></c>"
