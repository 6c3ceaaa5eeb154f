// Reads pictures out: the node wrote every text, and this chooses which of them is seen.
"use strict";

(() => {
  let shown = null;  // the picture that is read out
  let at = [];  // where: a column, or a row and a column
  let place = null;  // the part of the page that has the picture, and its number there
  let redrawing = false, focused = false;

  const clamp = (value, count) => Math.max(0, Math.min(count - 1, value));
  const numberOf = (text, index) => {
    const code = text.charCodeAt(index);
    return code < 0x100 ? code - 63 : code - 0x100 + 64;
  };

  // Four charts have one clock: all of them, and their keys, show the same column. None: the last.
  function readCharts(charts, column) {
    for (const each of charts.querySelectorAll("[data-values]")) {
      const values = each.dataset.values.split("|");
      each.dataset.now ??= each.textContent;
      each.textContent = column === null ? each.dataset.now : values[column];
    }
    for (const cross of charts.querySelectorAll(".cross")) {
      const height = cross.parentNode.viewBox.baseVal.height;
      cross.setAttribute("d", column === null ? "" : `M${column + 0.5} 0V${height}`);
    }
  }

  function readLine(svg, text) {
    const line = svg.closest("figure").querySelector(".read");
    line.textContent = text ?? line.dataset.rest;
    line.classList.toggle("on", text !== null);
  }

  function readCell(svg, cell) {
    const [left, top, side] = svg.dataset.place.split(" ").map(Number);
    const chosen = svg.querySelector(".chosen");
    chosen.setAttribute("width", cell === null ? 0 : side);
    if (cell === null) return readLine(svg, null);
    const [row, column] = cell;
    const names = svg.dataset.names.split("|");
    chosen.setAttribute("height", side);
    chosen.setAttribute("x", left + column * side - 1);
    chosen.setAttribute("y", top + row * side - 1);
    const word = svg.dataset.words.split("|")[numberOf(svg.dataset.cells, row * names.length + column)];
    return readLine(svg, `${names[row]} → ${names[column]}: ${word}`);
  }

  // The bars of all metrics have the same words.
  const wordsOf = (svg) => svg.closest("[data-words]").dataset.words.split("|");

  // Marks the partitions of a member in each ring of the same section.
  function readBar(svg, member) {
    readLine(svg, member === null ? null : wordsOf(svg)[member]);
    for (const ring of (svg.closest("section") ?? document).querySelectorAll("svg.ring")) {
      const owners = ring.dataset.owners;
      const dashes = [0];
      let own = false;
      for (let partition = 0; partition < owners.length && member !== null; partition += 1) {
        if ((numberOf(owners, partition) === member + 1) !== own) { own = !own; dashes.push(0); }
        dashes[dashes.length - 1] += 1;
      }
      // Dashes and gaps take turns: first a dash without length, and a gap up to the first mark.
      dashes.unshift(0);
      if (dashes.length % 2) dashes.push(0);
      if (member === null) dashes.splice(0, dashes.length, 0, owners.length);
      ring.querySelector(".pointed").setAttribute("stroke-dasharray", dashes.join(" "));
    }
  }

  function kindOf(svg) {
    if (svg.matches(".plot")) {
      const count = Number(svg.dataset.columns);
      return { size: [count], read: (where) => readCharts(svg.closest(".charts"), where && where[0]) };
    }
    if (svg.matches(".square")) {
      const count = svg.dataset.names.split("|").length;
      return { size: [count, count], read: (where) => readCell(svg, where) };
    }
    return { size: [wordsOf(svg).length], read: (where) => readBar(svg, where && where[0]) };
  }

  function show(svg, where) {
    if (shown !== null && shown !== svg && shown.isConnected) kindOf(shown).read(null);
    shown = where === null ? null : svg;
    at = where ?? [];
    const part = svg.closest("[id]");
    place = [part.id, picturesOf(part).indexOf(svg)];
    kindOf(svg).read(where);
  }

  const picturesOf = (part) => [...part.querySelectorAll("svg.pic[tabindex]")];

  // Parts of the page are written anew: what is read out stays.
  document.addEventListener("redraw", () => {
    redrawing = true;
    focused = shown !== null && shown === document.activeElement;
  });
  document.addEventListener("redrawn", () => {
    redrawing = false;
    if (shown === null || shown.isConnected) return;
    const [id, number] = place;
    const svg = picturesOf(document.getElementById(id))[number];
    shown = null;
    if (svg === undefined) return;
    if (focused) svg.focus({ preventScroll: true });
    const { size } = kindOf(svg);
    show(svg, at.map((index, axis) => clamp(index, size[axis])));
  });

  function pointed(svg, event) {
    const box = svg.getBoundingClientRect();
    const across = (event.clientX - box.left) / box.width;
    if (svg.matches(".square")) {
      const [left, top, side] = svg.dataset.place.split(" ").map(Number);
      const scale = svg.viewBox.baseVal.width / box.width;
      const where = [(event.clientY - box.top) * scale - top, (event.clientX - box.left) * scale - left];
      const cell = where.map((distance) => Math.floor(distance / side));
      const [count] = kindOf(svg).size;
      return cell.every((index) => index >= 0 && index < count) ? cell : null;
    }
    const [count] = kindOf(svg).size;
    const left = Number(svg.dataset.left ?? 0) / 100;
    return [clamp(Math.floor(((across - left) / (1 - left)) * count), count)];
  }

  function follow(event) {
    const svg = event.target.closest?.("svg.pic[tabindex]") ?? null;
    if (svg !== null) show(svg, pointed(svg, event));
    else if (shown !== null && shown !== document.activeElement) show(shown, null);
  }

  document.addEventListener("pointermove", follow);
  document.addEventListener("pointerdown", follow);
  document.addEventListener("focusout", (event) => {
    if (event.target === shown && !redrawing) show(shown, null);
  });

  document.addEventListener("keydown", (event) => {
    const svg = event.target.closest?.("svg.pic[tabindex]") ?? null;
    if (svg === null) return;
    const { size } = kindOf(svg);
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
    const move = size.length === 2 ? [down, right] : [right];
    if (!move.some(Boolean)) return;
    event.preventDefault();
    const start = shown === svg ? at : size.length === 2 ? [0, 0] : [svg.matches(".plot") ? size[0] : -1];
    show(svg, start.map((index, axis) => clamp(index + move[axis], size[axis])));
  });

  // A choice of what bars show: it stays when the bars are drawn anew.
  document.addEventListener("change", (event) => {
    if (event.target.matches("select[data-metrics]")) {
      event.target.closest("section").querySelector(".metrics").dataset.shown = event.target.value;
    }
  });
})();
