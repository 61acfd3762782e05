"use strict";
// Without this script every point is shown; with it, the one that is nearest to the reader's network.
{
  const names = ["layers", "width", "batch"];
  const fields = names.map((name) => {
    const number = document.getElementById(name), slider = number.previousElementSibling;
    return {name, number, slider, measured: slider.dataset.values.split(" ").map(Number)};
  });
  const gpu = document.getElementById("gpu"); // none where all points are of one
  const all = [...document.querySelectorAll(".answer")].map((article) => ({
    article, ...article.dataset, ...Object.fromEntries(names.map((name) => [name, Number(article.dataset[name])])),
  }));
  let points = all;
  const told = document.querySelector(".told"), nearby = document.querySelector(".nearby");
  const made = (tag, ...parts) => { const element = document.createElement(tag); element.append(...parts); return element; };
  const doublings = (one, other) => Math.abs(Math.log2(one / other));
  const addressOf = (place) => `#${names.map((name) => `${name}=${place[name]}`).join("&")}`;
  const within = (value, {number}) => Math.min(Math.max(Math.round(value), Number(number.min)), Number(number.max));

  function asked() { // the reader's network; a field without a number counts as it was before
    for (const {number, name} of fields)
      if (number.value !== "" && number.checkValidity()) current[name] = Number(number.value);
    return current;
  }

  function distance(place, point) { // in doublings: of width, of batch, and of layers with the last one
    const width = place.layers && point.layers ? doublings(place.width, point.width) : 0;
    return width + doublings(place.batch, point.batch) + doublings(place.layers + 1, point.layers + 1);
  }

  function tell(place, point, far) {
    const hidden = Array(place.layers).fill(place.width).join(",") || "none";
    const command = `python run_ladder.py --hidden ${hidden} --batch-size ${place.batch}`;
    const differs = [];
    if (place.layers !== point.layers) differs.push(`${point.layers} hidden ${point.layers === 1 ? "layer" : "layers"}, not ${place.layers}`);
    if (place.layers && point.layers && place.width !== point.width) differs.push(`${point.width} units, not ${place.width}`);
    if (place.batch !== point.batch) differs.push(`batch ${point.batch}, not ${place.batch}`);
    const own = ["784", ...Array(place.layers).fill(place.width), "10"].join("-");
    told.replaceChildren(...far === 0 ? [made("strong", "Measured."), " This very network and batch."] : [
      made("strong", "Not measured: "), `${own}, batch ${place.batch}. The nearest measured point has ${differs.join("; ")}. `,
      far >= 2 ? "That is far from yours, and another rung may win there. " : "", "Time your own: ", made("code", command)]);
  }

  function showNearby(point) {
    const rows = [];
    const words = {layers: ["Fewer layers", "More layers"], width: ["Narrower", "Wider"], batch: ["Smaller batch", "Larger batch"]};
    for (const name of names) {
      const alike = points.filter((one) => names.every((other) => other === name || one[other] === point[other]));
      const sides = [alike.filter((one) => one[name] < point[name]).sort((a, b) => b[name] - a[name]),
                     alike.filter((one) => one[name] > point[name]).sort((a, b) => a[name] - b[name])];
      sides.forEach(([one], side) => {
        const head = made("td", words[name][side]);
        if (!one) { rows.push(made("tr", head, made("td", "not measured"), made("td"), made("td"), made("td"))); return; }
        const link = made("a", one[name].toLocaleString("en")), time = made("td", one.time);
        link.href = addressOf(one);
        time.className = "n";
        rows.push(made("tr", head, made("td", link), made("td", made("code", one.rung)), time, made("td", one.lead || "not stated")));
      });
    }
    nearby.querySelector("tbody").replaceChildren(...rows);
    nearby.hidden = false;
  }

  function show() {
    const place = asked(), far = points.map((point) => distance(place, point));
    const least = Math.min(...far), nearest = points[far.indexOf(least)];
    for (const {article} of all) article.hidden = article !== nearest.article;
    for (const link of document.querySelectorAll("a.place"))
      link.classList.toggle("chosen", names.every((name) => Number(link.dataset[name]) === nearest[name]));
    for (const {name, slider, number, measured} of fields) {
      const apart = measured.map((value) => doublings(value + 1, place[name] + 1));
      slider.value = apart.indexOf(Math.min(...apart));
      slider.setAttribute("aria-valuetext", `${measured[slider.value]}`);
      number.setAttribute("aria-invalid", String(!number.checkValidity()));
    }
    const width = fields.find(({name}) => name === "width");
    width.slider.disabled = width.number.disabled = place.layers === 0;
    tell(place, nearest, least);
    showNearby(nearest);
  }

  function chooseGpu() {
    points = all.filter((point) => !gpu || point.gpu === gpu.value);
    for (const section of document.querySelectorAll("section[data-gpu]")) section.hidden = Boolean(gpu) && section.dataset.gpu !== gpu.value;
    show();
  }

  function restore() { // from the address
    const given = new URLSearchParams(location.hash.slice(1));
    for (const field of fields) {
      const value = given.get(field.name);
      if (value !== null && Number.isFinite(Number(value))) field.number.value = within(Number(value), field);
    }
    show();
  }

  const current = Object.fromEntries(fields.map(({name, number}) => [name, Number(number.defaultValue)]));
  for (const {number, slider, measured} of fields) {
    slider.addEventListener("input", () => { number.value = measured[slider.value]; number.dispatchEvent(new Event("input", {bubbles: true})); });
    number.addEventListener("input", () => { show(); history.replaceState(null, "", addressOf(current)); });
  }
  document.querySelector(".yours").addEventListener("submit", (event) => event.preventDefault());
  document.querySelector(".yours").hidden = false;
  window.addEventListener("hashchange", () => { restore(); window.scrollTo(0, 0); });
  gpu?.addEventListener("change", chooseGpu);
  chooseGpu();
  restore();
}
