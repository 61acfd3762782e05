"use strict";
// The calculator's fields and picture; what they show is `advice`'s.
{
  const {model, networkOf, outlook, deciding, verdict, notes, guess, training, microseconds, number, decimals, nearest} = advice;
  const [hidden, batch, epochs, chip] = ["hidden", "of-batch", "epochs", "chip"].map((id) => document.getElementById(id));
  const [told, ranges, sure] = [".advice", ".ranges", ".sure"].map((name) => document.querySelector(`.calculator ${name}`));
  const made = (tag, ...parts) => { const element = document.createElement(tag); element.append(...parts); return element; };
  const drawn = (tag, attributes, text = "") => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.textContent = text;
    return element;
  };
  const coded = (text) => text.split("`").map((part, index) => index % 2 ? made("code", part) : part);
  const wordsOf = (name) => model.reference_words[name] || model.stages[name].words;
  const rangeOf = (one) => [one.low, one.high].map((end) => number(end, decimals(one.us))).join("-");

  function asked() { // the network, or a sentence on what is wrong
    const text = hidden.value.trim().replace(/^none$/i, ""), layers = text === "" ? [] : text.split(/[\s,-]+/).map(Number);
    const isWrong = layers.some((width) => !Number.isInteger(width) || width < 1 || width > 1e6);
    hidden.setAttribute("aria-invalid", String(isWrong));
    for (const field of [batch, epochs]) field.setAttribute("aria-invalid", String(!field.checkValidity() || field.value === ""));
    if (isWrong) return "Hidden layers: write their widths, such as 300,100; leave it empty for none.";
    if (!batch.checkValidity() || batch.value === "") return "Batch: a whole number from 1 to 60,000.";
    if (!epochs.checkValidity() || epochs.value === "") return "Epochs: a whole number from 1.";
    return networkOf(layers, Number(batch.value));
  }

  function picture(stages) { // a line a stage on a log axis: its range, and its time as a dot
    const isNarrow = ranges.clientWidth < 560, width = isNarrow ? 360 : 760, left = isNarrow ? 12 : 178, row = isNarrow ? 46 : 30, right = width - (isNarrow ? 12 : 150);
    const ends = [Math.min(...stages.map((one) => one.low)), Math.max(...stages.map((one) => one.high))].map(Math.log10);
    const [from, to] = [Math.floor(ends[0] * 2) / 2, Math.ceil(ends[1] * 2) / 2];
    const x = (us) => left + (Math.log10(us) - from) / Math.max(to - from, 0.5) * (right - left);
    const height = stages.length * row + 30;
    const svg = drawn("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Expected microseconds a step with their ranges; the table has the same numbers"});
    for (let power = Math.ceil(from); power <= to; power++) {
      svg.append(drawn("line", {x1: x(10 ** power), x2: x(10 ** power), y1: 6, y2: height - 22, class: "grid"}));
      svg.append(drawn("text", {x: x(10 ** power), y: height - 6, "text-anchor": "middle", class: "small axis"}, `${number(10 ** power, power < 0 ? -power : 0)}${power === Math.ceil(from) ? " us" : ""}`));
    }
    stages.forEach((one, index) => {
      const y = index * row + (isNarrow ? 34 : 20), kind = model.stages[one.name].is_reference ? "reference" : "rung";
      svg.append(drawn("text", isNarrow ? {x: left, y: y - 14, class: "mono halo"} : {x: left - 14, y: y + 4, "text-anchor": "end", class: "mono halo"}, one.name));
      svg.append(drawn("line", {x1: x(one.low), x2: x(one.high), y1: y, y2: y, class: `range ${kind}`}));
      svg.append(drawn("circle", {cx: x(one.us), cy: y, r: 5.5, class: `${kind}${one.isRecorded ? " recorded" : ""}`}));
      const text = `${one.isRecorded ? "" : "~"}${microseconds(one.us)} us`;
      svg.append(drawn("text", isNarrow ? {x: right, y: y - 14, "text-anchor": "end", class: "bold halo"} : {x: right + 14, y: y + 4, class: "bold halo"}, text));
    });
    return svg;
  }

  function table(stages, network, times) {
    const head = made("tr", ...["Stage", "Precision", "us/step", "Nine in ten", "Prepare", "Your training", ""].map((text) => made("th", text)));
    const rows = stages.map((one) => {
      const {precision_words} = model.stages[one.name], seconds = training(one, times, network);
      return made("tr", made("td", made("code", one.name)), made("td", precision_words), made("td", `${one.isRecorded ? "" : "~"}${microseconds(one.us)}`), made("td", rangeOf(one)), made("td", advice.duration(one.prepare)), made("td", advice.duration(seconds)), made("td", wordsOf(one.name)));
    });
    const body = made("table", made("thead", head), made("tbody", ...rows));
    for (const place of [2, 3, 4, 5]) for (const line of body.rows) line.cells[place].className = "n";
    for (const cell of head.cells) cell.scope = "col";
    const frame = made("div", body);
    frame.className = "frame";
    Object.assign(frame, {tabIndex: 0});
    frame.setAttribute("role", "group");
    frame.setAttribute("aria-label", "Expected times");
    return made("details", made("summary", "The same as a table"), frame);
  }

  function show() {
    const network = asked();
    const refuse = (text) => { told.replaceChildren(made("p", text)); ranges.replaceChildren(); sure.replaceChildren(); };
    if (typeof network === "string") return refuse(network);
    const own = model.chips.find((one) => one.name === chip.value), all = outlook(network, own);
    if (!all) return refuse("This network or batch is larger than every recorded one, so nothing is expected of it. Choose a smaller one.");
    const stages = deciding(all);
    const [first, ...rest] = verdict(stages, Number(epochs.value), network).map((text) => made("p", ...coded(text)));
    first.className = "verdict";
    told.replaceChildren(first, ...rest);
    ranges.replaceChildren(picture(stages), table(stages, network, Number(epochs.value)));
    const near = nearest(network, own);
    sure.replaceChildren(...coded(`${[guess(own, network), notes(stages, own)].join(" ").trim()} Nearest recorded network: ${["784", ...near.hidden, "10"].join("-")}, batch ${near.batch}. The same in a terminal: `),
      made("code", `python run_ladder.py advise${hidden.value.trim() ? ` --hidden ${network.hidden.join()}` : ""} --batch-size ${network.batch} --gpu "${own.name}"`));
  }

  for (const field of [hidden, batch, epochs, chip]) field.addEventListener("input", show);
  document.querySelector(".calculator form").addEventListener("submit", (event) => event.preventDefault());
  matchMedia("(max-width:679px)").addEventListener("change", show);
  show();
}
