// phi as a heat map on a canvas, in an order that one chooses.

const MATRIX = 860; // CSS pixels at most
const NUMBERED = 40; // clients whose numbers fit along an axis
const WRITTEN = 12; // clients whose values fit into the cells

class Matrix {
  /** `choose(client, contributor)` is called for clicks and Enter; names are null for numbers. */
  constructor(n, choose, names) {
    this.n = n;
    this.names = names;
    this.cell = Math.max(2, Math.min(46, Math.floor(MATRIX / n)));
    this.pad = n <= NUMBERED ? (names ? 96 : 24) : 0;
    this.size = this.pad + this.cell * n;
    this.cursor = null; // [row, column] in the order shown
    this.cells = el("canvas"); // painted anew for other values only
    this.canvas = el("canvas", { tabindex: 0, role: "application",
      "aria-roledescription": "heat map", "aria-describedby": "matrix-cell",
      "aria-label": "Contributions: a row for each client's model, a column for each " +
        "contributor; arrow keys go from cell to cell, Enter chooses" });
    this.canvas.style.width = `${this.size}px`;
    this.canvas.style.aspectRatio = "1";
    this.node = el("div", { class: "matrix-frame" },
      el("span", { class: "side" }, "client whose model it is"), this.canvas,
      el("span", {}), el("span", { class: "foot" }, "contributor"));
    const at = (event) => {
      const box = this.canvas.getBoundingClientRect();
      const place = (one) => Math.floor(((one * this.size) / box.width - this.pad) / this.cell);
      const found = [place(event.clientY - box.top), place(event.clientX - box.left)];
      return found.every((one) => one >= 0 && one < n) ? found : null;
    };
    const open = (cell) => cell && choose(this.order[cell[0]], this.order[cell[1]]);
    this.canvas.addEventListener("mousemove", (event) => this.move(at(event)));
    this.canvas.addEventListener("mouseleave", () => this.move(null));
    this.canvas.addEventListener("click", (event) => open(at(event)));
    this.canvas.addEventListener("keydown", (event) => {
      if (event.key === "Enter") return open(this.cursor);
      const [row, column] = this.cursor ?? [0, 0];
      onArrows(event, row * n + column, n * n, n, (next) =>
        this.move([Math.floor(next / n), next % n]));
    });
  }

  /** An empty canvas, two pixels or more to each of CSS. */
  pen(canvas) {
    const dense = Math.min(3, Math.max(2, window.devicePixelRatio || 1));
    canvas.width = canvas.height = this.size * dense; // which empties it
    const pen = canvas.getContext("2d");
    pen.scale(dense, dense);
    return pen;
  }

  move(cell) {
    this.cursor = cell;
    this.frame();
    this.canvas.dispatchEvent(new CustomEvent("cell", {
      detail: cell && [this.order[cell[0]], this.order[cell[1]]] }));
  }

  /** Shows values(i, j) up to `most`, clients in `order`, the chosen client's row in a frame. */
  draw({ values, most, order, text, chosen }) {
    Object.assign(this, { values, most, order, text, chosen });
    this.paint();
    this.move(this.cursor);
  }

  paint() {
    const { n, cell, pad, order } = this;
    const pen = this.pen(this.cells);
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    const gap = cell > 8 ? 1 : cell > 5 ? 0.5 : 0;
    for (let row = 0; row < n; row++) {
      for (let column = 0; column < n; column++) {
        const value = this.values(order[row], order[column]);
        const [x, y] = [pad + column * cell, pad + row * cell];
        const shade = colour(value, this.most);
        pen.fillStyle = shade.css;
        pen.fillRect(x, y, cell - gap, cell - gap);
        if (n <= WRITTEN) {
          pen.fillStyle = shade.ink;
          pen.fillText(value === 0 ? "0" : this.text(value), x + cell / 2, y + cell / 2, cell - 4);
        }
      }
    }
    pen.fillStyle = colourOf("--soft");
    for (let k = 0; this.names && pad && k < n; k++) {
      const text = shortened(this.names[order[k]], 16);
      pen.textAlign = "right";
      pen.fillText(text, pad - 5, pad + (k + 0.5) * cell, pad - 6);
      pen.save(); // the same from top to bottom above its column
      pen.translate(pad + (k + 0.5) * cell, pad - 5);
      pen.rotate(Math.PI / 2);
      pen.fillText(text, 0, 0, pad - 6);
      pen.restore();
    }
    for (let k = 0; !this.names && pad && k < n; k++) {
      pen.fillText(String(order[k]), pad + (k + 0.5) * cell, pad / 2, cell);
      pen.fillText(String(order[k]), pad / 2, pad + (k + 0.5) * cell);
    }
  }

  /** The cells, and around them the chosen client's row and the cell under the cursor. */
  frame() {
    const { n, cell, pad, order, size } = this;
    const pen = this.pen(this.canvas);
    pen.drawImage(this.cells, 0, 0, size, size);
    if (this.chosen !== null) {
      const row = order.indexOf(this.chosen);
      pen.strokeStyle = colourOf("--ink");
      pen.lineWidth = 2;
      pen.strokeRect(pad, pad + row * cell - 0.5, n * cell - 0.5, cell);
    }
    if (this.cursor) {
      const [row, column] = this.cursor;
      pen.strokeStyle = colourOf("--alarm");
      pen.lineWidth = 2;
      pen.strokeRect(pad + column * cell - 0.5, pad + row * cell - 0.5, cell, cell);
    }
  }
}
