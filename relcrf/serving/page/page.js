"use strict";
// The page shows one variable of the stored tables: its probabilities, its neighbourhood as a picture, and its contributions.

const MAX_DRAWN = 24;
const ROW = 38;
const REACH = 190; // distance of the columns from the variable
const WIDTH = 900;
const LABELS = { start: "without evidence", interaction: "interaction", constant: "constant", others: "other numbers" };
let newest = 0; // number of the last request; answers to earlier requests are ignored

const byId = (id) => document.getElementById(id);

function element(name, attributes = {}, ...content) {
    const node = name.startsWith("svg:")
        ? document.createElementNS("http://www.w3.org/2000/svg", name.slice(4))
        : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...content);
    return node;
}

async function fetchJson(path, options) {
    const response = await fetch(path, options);
    const content = await response.json();
    if (!response.ok) {
        const lines = content.errors.map((each) => `${each.code}: ${each.message}` + (each.hint ? `\n${each.hint}` : ""));
        throw new Error(lines.join("\n"));
    }
    return content;
}

function showError(error) {
    byId("error").hidden = false;
    byId("error").textContent = error.message;
}

const signed = (number) => (number === null ? "undefined" : (number < 0 ? "−" : "+") + Math.abs(number).toFixed(3));
const shorten = (text, length) => (text.length > length ? text.slice(0, length - 1) + "…" : text);
const link = (variable) => "#" + encodeURIComponent(variable);
const describe = (each) => `${each.name} = ${each.state}` + (each.is_observed ? "" : ` (${each.probability.toFixed(2)})`);

function sourceOf(contribution) {
    return LABELS[contribution.kind] || contribution.neighbours.map(describe).join(", ") || "itself";
}

function drawNeighbourhood(explanation) {
    const drawn = explanation.contributions.filter((each) => each.kind !== "constant").slice(0, MAX_DRAWN);
    const sides = { 1: drawn.filter((each) => each.amount >= 0), "-1": drawn.filter((each) => each.amount < 0) };
    const height = Math.max(3, sides[1].length, sides["-1"].length) * ROW + 20;
    const largest = Math.max(...drawn.map((each) => Math.abs(each.amount)), 1e-12);
    const svg = element("svg:svg", { viewBox: `${-WIDTH / 2} ${-height / 2} ${WIDTH} ${height}`, width: WIDTH, role: "group" });
    svg.setAttribute("aria-label", `Neighbourhood of ${explanation.variable}`);
    for (const side of [1, -1]) {
        sides[side].forEach((each, k) => {
            const [x, y] = [side * REACH, (k - (sides[side].length - 1) / 2) * ROW];
            const ratio = Math.abs(each.amount) / largest;
            const line = { x1: 0, y1: 0, x2: x, y2: y, "stroke-width": 1 + 7 * ratio };
            svg.append(element("svg:line", { ...line, class: side > 0 ? "supporting" : "opposing" }));
            const text = { x: x + side * 12, "text-anchor": side > 0 ? "start" : "end" };
            const title = element("svg:title", {}, `${sourceOf(each)}: ${each.templates.join(", ")} ${signed(each.amount)}`);
            const mark = element(each.neighbours.length ? "svg:a" : "svg:g", {}, title);
            if (each.neighbours.length) mark.setAttribute("href", link(each.neighbours[0].name));
            mark.append(
                element("svg:circle", { cx: x, cy: y, r: 6, class: each.kind }),
                element("svg:text", { ...text, y: y - 2 }, shorten(sourceOf(each), 34)),
                element("svg:text", { ...text, y: y + 13, class: "detail" }, shorten(`${each.templates.join(", ")} ${signed(each.amount)}`, 34)),
            );
            svg.append(mark);
        });
    }
    const names = [explanation.variable, explanation.short_answer];
    const half = 12 + 3.9 * Math.max(...names.map((name) => shorten(name, 30).length));
    svg.append(element("svg:rect", { x: -half, y: -22, width: 2 * half, height: 44, rx: 6 }));
    names.forEach((name, k) => {
        svg.append(element("svg:text", { x: 0, y: 18 * k - 4, "text-anchor": "middle" }, shorten(name, 30)));
    });
    return svg;
}

function showExplanation(explanation) {
    byId("variable").textContent = explanation.variable;
    const truth = explanation.truth === null ? "" : ` Its value in the tables is ${explanation.truth}; the prediction does not use it.`;
    const isNumber = explanation.probabilities === undefined;
    byId("answer").textContent = isNumber
        ? `Prediction: ${explanation.short_answer}.${truth}`
        : `Prediction: ${explanation.answer}. Compared with: ${explanation.against}.${truth}`;
    byId("probabilities").hidden = isNumber;
    const rows = Object.entries(explanation.probabilities ?? {}).sort((a, b) => b[1] - a[1]);
    byId("probabilities").tBodies[0].replaceChildren(
        ...rows.map(([value, probability]) =>
            element(
                "tr",
                {},
                element("th", { scope: "row" }, value),
                element("td", {}, element("meter", { min: 0, max: 1, value: probability, "aria-label": value })),
                element("td", { class: "number" }, probability.toFixed(4)),
            ),
        ),
    );
    byId("picture").replaceChildren(drawNeighbourhood(explanation));
    const omitted = explanation.contributions.filter((each) => each.kind !== "constant").slice(MAX_DRAWN);
    const sides = isNumber
        ? `: ${explanation.effects[0]} (blue, right), ${explanation.effects[1]} (brown, left)`
        : ` of ${explanation.answer} (blue, right) against ${explanation.against} (brown, left)`;
    byId("caption").textContent =
        `Contributions to the ${explanation.quantity} ${signed(explanation.total)}${sides}. ` +
        "Grey discs are observed neighbours, violet discs predicted ones." +
        (omitted.length ? ` ${omitted.length} smaller contributions are not drawn.` : "") +
        (Math.abs(explanation.remainder) > 5e-4 ? ` Remainder: ${signed(explanation.remainder)}.` : "");
    byId("contributions").tBodies[0].replaceChildren(
        ...explanation.contributions.map((each) => {
            const source = element("td", {});
            each.neighbours.forEach((neighbour, k) => {
                if (k) source.append(", ");
                source.append(element("a", { href: link(neighbour.name) }, describe(neighbour)));
            });
            if (!each.neighbours.length) source.append(sourceOf(each));
            const parts = each.features.slice(0, 5).map((part) => {
                const name = part.feature === "1" ? part.key : `${part.key} ${part.feature}`.trim();
                return `${name || part.template} ${signed(part.amount)}`;
            });
            return element(
                "tr",
                {},
                source,
                element("td", {}, each.templates.join(", ")),
                element("td", { class: "number" }, signed(each.amount)),
                element("td", {}, parts.join(", ")),
            );
        }),
    );
    byId("explanation").hidden = false;
}

async function explainHash() {
    const variable = decodeURIComponent(location.hash.slice(1));
    markCurrent();
    if (!variable) return;
    const number = ++newest;
    const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ variable }) };
    try {
        const explanation = await fetchJson("explain", options);
        if (number !== newest) return;
        byId("error").hidden = true;
        showExplanation(explanation);
        document.title = `${explanation.variable}: ${explanation.answer ?? explanation.short_answer}`;
    } catch (error) {
        if (number === newest) {
            byId("explanation").hidden = true;
            showError(error);
        }
    }
}

function markCurrent() {
    for (const each of byId("found").querySelectorAll("a")) {
        if (each.getAttribute("href") === location.hash) each.setAttribute("aria-current", "true");
        else each.removeAttribute("aria-current");
    }
}

let searched = 0;
async function search() {
    const number = ++searched;
    try {
        const found = await fetchJson("variables?search=" + encodeURIComponent(byId("text").value));
        if (number !== searched) return;
        byId("found").replaceChildren(
            ...found.variables.map((each) =>
                element("li", {}, element("a", { href: link(each.variable) }, each.variable, element("span", {}, each.value ?? "?"))),
            ),
        );
        byId("more").hidden = !found.has_more;
        markCurrent();
    } catch (error) {
        showError(error);
    }
}

async function start() {
    try {
        const health = await fetchJson("healthz");
        byId("attributes").textContent = health.attributes.join(", ");
        byId("status").textContent = `Backend ${health.backend}, loaded ${health.loaded_at.slice(0, 16).replace("T", " ")} UTC.`;
        if (!health.has_stored_tables) {
            throw new Error("The service has no stored tables. Start it with --data FOLDER to search and explain their entities.");
        }
    } catch (error) {
        showError(error);
        return;
    }
    byId("search").hidden = false;
    byId("text").addEventListener("input", search);
    window.addEventListener("hashchange", explainHash);
    await Promise.all([search(), explainHash()]);
}

start();
