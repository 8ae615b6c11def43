// What a page shows, as files of one's own: tables as CSV, drawings as SVG or PNG.

const LOOKS = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "opacity",
  "font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline", "visibility"];

const saved = (text, onclick) =>
  el("p", { class: "saved" }, el("button", { type: "button", class: "link", onclick }, text));

function download(name, ending, content, type) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  el("a", { href: url, download: name.replaceAll(/\W+/g, "_") + ending }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** Lines of cells as CSV: quoted where a comma, a quote or an end of line is in a cell. */
const csv = (lines) => lines.map((cells) => cells.map((cell) => {
  const text = Number.isNaN(cell) ? "" : String(cell ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}).join(",")).join("\r\n") + "\r\n";

/** A drawing that looks the same without the page's style. */
function standing(svg) {
  const copy = svg.cloneNode(true);
  const all = (node) => [node, ...node.querySelectorAll("*")];
  const styles = all(svg).map((node) => getComputedStyle(node));
  all(copy).forEach((node, k) => {
    for (const look of LOOKS) node.setAttribute(look, styles[k].getPropertyValue(look));
  });
  copy.setAttribute("xmlns", SVG);
  return new XMLSerializer().serializeToString(copy);
}

/** Puts a button beneath the place of a drawing, which saves what is drawn there by then. */
function savable(id, name) {
  byId(id).after(saved("Save this figure", () => {
    const drawn = byId(id).querySelector("canvas, svg");
    if (drawn instanceof HTMLCanvasElement) drawn.toBlob((png) => download(name, ".png", png));
    else if (drawn) download(name, ".svg", standing(drawn), "image/svg+xml");
  }));
}
