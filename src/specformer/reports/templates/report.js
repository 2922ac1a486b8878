"use strict";
// Readers look into a report with this: values under the pointer, choices, keys, tables.
// The page is complete without it, and it fetches nothing.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const drawn = (tag, attributes) => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const written = (value) => {
    if (value === null) return "–";
    const size = Math.abs(value);
    if (size && (size < 1e-3 || size >= 1e6)) {
      const [digits, exponent] = value.toExponential(2).split("e");
      return `${digits}×10^${Number(exponent)}`.replaceAll("-", "−");
    }
    return String(Number(value.toPrecision(4))).replace("-", "−");
  };

  // --- the box beside the pointer, which screen readers read out --------------------------------

  const tip = make("div", { className: "tip", hidden: true });
  tip.setAttribute("role", "status");
  document.body.append(tip);

  const showTip = (lines, x, y) => {
    tip.replaceChildren();
    lines.forEach(([name, value], number) => {
      if (number) tip.append("\n");
      if (name) tip.append(make("b", { textContent: value ? `${name} ` : name }));
      tip.append(value);
    });
    tip.hidden = false;
    const width = document.documentElement.clientWidth, gap = 14;
    const left = Math.min(x + gap, width - tip.offsetWidth - 4);
    const below = y + gap + tip.offsetHeight < window.innerHeight;
    const top = below ? y + gap : Math.max(4, y - gap - tip.offsetHeight);
    tip.style.transform =
      `translate(${Math.max(4, left) + window.scrollX}px, ${top + window.scrollY}px)`;
  };

  // --- charts: the values at a place -------------------------------------------------------------

  class Chart {
    constructor(picture) {
      this.picture = picture;
      this.svg = picture.querySelector("svg");
      ({ panels: this.panels, paints: this.paints } = JSON.parse(picture.dataset.values));
      this.hidden = new Set();
      this.panel = 0;
      this.index = -1;
      this.cursor = drawn("g", { class: "cursor" });
      this.svg.append(this.cursor);
      picture.tabIndex = 0;
      picture.setAttribute("role", "group");
      picture.setAttribute(
        "aria-label", `${this.svg.getAttribute("aria-label")} Arrow keys read out its values.`);
      picture.addEventListener("pointermove", (event) => this.point(event));
      picture.addEventListener("pointerdown", (event) => this.point(event));
      picture.addEventListener("pointerleave", () => this.clear());
      picture.addEventListener("keydown", (event) => this.press(event));
      picture.addEventListener("blur", () => this.clear());
    }

    series(panel) {
      return panel.series.filter((each) => !this.hidden.has(each.name));
    }

    // Where a value lies along an axis (0: x, 1: y), in the drawing's units.
    place(panel, axis, value) {
      const scale = panel.log[axis] ? Math.log10 : Number;
      const [low, high] = axis ? panel.y : panel.x;
      const share = (scale(value) - scale(low)) / (scale(high) - scale(low));
      const [left, top, width, height] = panel.box;
      return axis ? top + (1 - share) * height : left + share * width;
    }

    inside(panel, x, y, slack = 6) {
      const [left, top, width, height] = panel.box;
      return x >= left - slack && x <= left + width + slack
        && y >= top - slack && y <= top + height + slack;
    }

    point(event) {
      const matrix = this.svg.getScreenCTM();
      if (!matrix) return;
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
      const number = this.panels.findIndex((panel) => this.inside(panel, at.x, at.y));
      if (number < 0) return this.clear();
      this.panel = number;
      this.show(this.nearest(this.panels[number], at), event.clientX, event.clientY);
    }

    // What to tell of a place: the values of all lines at the nearest x, or one point's text.
    nearest(panel, at) {
      let best = null;
      for (const each of this.series(panel)) {
        each.x.forEach((value, index) => {
          const across = this.place(panel, 0, value) - at.x;
          const along = each.notes ? this.place(panel, 1, each.y[index]) - at.y : 0;
          const distance = Math.hypot(across, along);
          if (!(distance >= (best?.distance ?? Infinity))) best = { each, index, distance };
        });
      }
      return best && { panel, ...best };
    }

    show(found, x, y) {
      if (!found) return this.clear();
      const { panel, each, index } = found;
      const marks = [];
      let lines;
      if (each.notes) {
        lines = [["", each.notes[index]]];
        marks.push([each.x[index], each.y[index]]);
      } else {
        const at = each.x[index];
        lines = [[panel.names[0] || "x", written(at)]];
        for (const line of this.series(panel).filter((other) => !other.notes)) {
          const spot = nearestIndex(line.x, at);
          lines.push([line.name, written(line.y[spot])]);
          marks.push([line.x[spot], line.y[spot]]);
        }
      }
      const [, top, , height] = panel.box;
      this.cursor.replaceChildren();
      if (!each.notes) {
        const across = this.place(panel, 0, each.x[index]);
        this.cursor.append(
          drawn("line", { x1: across, x2: across, y1: top, y2: top + height }));
      }
      for (const [a, b] of marks) {
        const spot = { cx: this.place(panel, 0, a), cy: this.place(panel, 1, b), r: 2.6 };
        if (b !== null && this.inside(panel, spot.cx, spot.cy)) {
          this.cursor.append(drawn("circle", spot));
        }
      }
      showTip(lines, x, y);
    }

    // Arrow keys go from point to point, and from panel to panel.
    press(event) {
      const steps = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 };
      const key = event.key;
      if (event.target !== this.picture) return undefined;
      if (key === "Escape") return this.clear();
      if (key === "ArrowUp" || key === "ArrowDown") {
        if (this.panels.length < 2) return undefined;
        this.panel = (this.panel + 1) % this.panels.length;
        this.index = -1;
      } else if (!(key in steps) && key !== "Home" && key !== "End") return undefined;
      event.preventDefault();
      const panel = this.panels[this.panel];
      const [first] = this.series(panel);
      if (!first) return undefined;
      const points = first.notes
        ? this.series(panel).flatMap((each) => each.x.map((_, index) => ({ each, index })))
        : first.x.map((_, index) => ({ each: first, index }));
      const last = points.length - 1;
      const wanted = { Home: 0, End: last }[key] ?? this.index + (steps[key] ?? 1);
      this.index = Math.min(last, Math.max(0, wanted));
      const { each, index } = points[this.index];
      const spot = new DOMPoint(
        this.place(panel, 0, each.x[index]), panel.box[1] + panel.box[3] / 2,
      ).matrixTransform(this.svg.getScreenCTM());
      return this.show({ panel, each, index }, spot.x, spot.y);
    }

    clear() {
      this.cursor.replaceChildren();
      tip.hidden = true;
      return undefined;
    }
  }

  function nearestIndex(values, wanted) {
    let best = 0;
    values.forEach((value, index) => {
      if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = index;
    });
    return best;
  }

  const charts = new Map();
  for (const picture of all(".picture[data-values]")) charts.set(picture, new Chart(picture));

  // --- keys: a click hides and shows a line in all pictures of its figure --------------------------

  for (const item of all(".key li[data-name]")) {
    const name = item.dataset.name, figure = item.closest("figure");
    const button = make("button", { type: "button" }, ...item.childNodes);
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on));
      for (const part of all("[data-series]", figure)) {
        if (part.dataset.series === name) part.style.display = on ? "" : "none";
      }
      for (const picture of all(".picture[data-values]", figure)) {
        charts.get(picture).hidden[on ? "delete" : "add"](name);
      }
    });
    item.append(button);
  }

  // --- choices: of many pictures of a figure those that a reader asks for -------------------------

  for (const figure of all("figure")) {
    const pictures = all(".picture[data-choice]", figure);
    const choices = new Map(pictures.map((each) => [each, JSON.parse(each.dataset.choice)]));
    const options = {};
    for (const choice of choices.values()) {
      for (const [name, value] of Object.entries(choice)) {
        (options[name] ??= new Set()).add(value);
      }
    }
    const bar = make("div", { className: "choices" });
    const selects = {};
    const fits = (choice) => Object.entries(selects).every(
      ([name, select]) => !(name in choice) || choice[name] === select.value);
    const update = (changed) => {
      if (![...choices.values()].some(fits)) { // not every combination was drawn
        const nearest = [...choices.values()].find(
          (choice) => choice[changed] === selects[changed].value);
        for (const [name, select] of Object.entries(selects)) select.value = nearest[name];
      }
      for (const [picture, choice] of choices) picture.hidden = !fits(choice);
    };
    for (const [name, values] of Object.entries(options)) {
      if (values.size < 2) continue;
      const select = make("select", {}, ...[...values].map((value) => new Option(value, value)));
      select.addEventListener("change", () => update(name));
      selects[name] = select;
      bar.append(make("label", {}, name, select));
    }
    if (bar.children.length) {
      figure.querySelector("figcaption").after(bar);
    }
  }

  // --- graphs: their nodes coloured by what a reader asks for ---------------------------------------

  for (const [picture, chart] of charts) {
    const paints = chart.paints;
    if (!paints) continue;
    const select = make("select", {}, ...paints.map((paint, number) => new Option(paint.name, number)));
    const told = make("p", { className: "told", textContent: paints[0].told });
    const circles = all("circle", picture), key = picture.closest("figure").querySelector(".key");
    const paint = () => {
      const { at, hues, told: words, centre } = paints[select.value];
      told.textContent = words;
      key?.classList.toggle("uncoloured", !hues.length); // its colours are those of classes
      circles.forEach((circle, node) => {
        const hue = hues.length ? hues[at[node]] : at[node] < 0 ? "blue" : "vermilion";
        circle.classList.toggle("centre", node === centre);
        circle.style.fill = `var(--plot-${hue})`;
        circle.style.fillOpacity = hues.length ? 1 : Math.abs(at[node]);
      });
    };
    select.addEventListener("change", paint);
    picture.prepend(make("div", { className: "choices" }, make("label", {}, "colour by", select)), told);
  }

  // --- tables: sorted by a column, copied as CSV ---------------------------------------------------

  const cellValue = (cell) => {
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    const text = cell.textContent.trim().replaceAll(",", "").replace("−", "-");
    const number = Number.parseFloat(text);
    return /^-?[\d.]/.test(text) && !Number.isNaN(number) ? number : cell.textContent.trim();
  };
  const compared = (a, b) => {
    const numbers = [a, b].map((value) => typeof value === "number");
    if (numbers[0] && numbers[1]) return a - b;
    return numbers[0] ? -1 : numbers[1] ? 1 : a.localeCompare(b);
  };
  const cellText = (cell) => {
    const spread = cell.querySelector(".spread");
    const main = [...cell.childNodes].filter((node) => node !== spread)
      .map((node) => node.textContent).join("").trim();
    return spread ? `${main} ${spread.textContent.trim()}` : main;
  };
  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const asCsv = (table) =>
    [...table.rows].map((row) => [...row.cells].map((cell) => quoted(cellText(cell))).join(","))
      .join("\n");
  const copied = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = make("textarea", { value: text });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };

  for (const table of all("table")) {
    const [head] = table.tHead.rows, [body] = table.tBodies;
    if (body.rows.length > 1) {
      [...head.cells].forEach((cell, column) => {
        const button = make("button", { type: "button" }, ...cell.childNodes);
        cell.append(button);
        button.addEventListener("click", () => {
          const up = cell.getAttribute("aria-sort") !== "ascending";
          for (const other of head.cells) other.removeAttribute("aria-sort");
          cell.setAttribute("aria-sort", up ? "ascending" : "descending");
          const rows = [...body.rows].sort((a, b) =>
            (up ? 1 : -1) * compared(cellValue(a.cells[column]), cellValue(b.cells[column])));
          body.append(...rows);
        });
      });
    }
    const button = make("button", { type: "button", className: "copy", textContent: "Copy as CSV" });
    button.addEventListener("click", async () => {
      await copied(asCsv(table));
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy as CSV"; }, 1500);
    });
    table.caption.firstElementChild.append(" ", button);
  }
})();
