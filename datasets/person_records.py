"""Records of persons with typing errors, of any number, for models/linkage.rcrf.

    python datasets/person_records.py --records 1000000 --out persons

Writes `record.parquet` with the columns id, person (the number of the person: the truth), first_name, surname, birth
(YYYY-MM-DD), street, town and postcode; see `relcrf/datasets/persons.py`. The seed is 0 unless `--seed` is set.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from relcrf.datasets.persons import make_records


def main() -> None:
    """Write the table that the options describe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(make_records(options.records, options.seed)).to_parquet(options.out / "record.parquet")


if __name__ == "__main__":
    main()
