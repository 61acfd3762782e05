(() => {
  const find = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const CLOSE = 50; // points, of 100, from which on a guess counts as close
  const STEPS = 200; // of the slider, for each factor of ten
  const ALL = "&all"; // ends an address whose measurements wait for no guess; in a name, & is %26
  const NARROWEST = 0.6; // pixels; a shorter bar of a timeline could not be seen
  let whole, data, stages, point = null, isLesson = false, showsAlways = false; // `whole` is a run's data, or a study's
  let guesses = new Map(); // by rung: the guessed us/step
  const guessesAt = new Map(); // by point of a study

  // ---------------------------------------------------------------- words and numbers
  const digits = (value) => {
    if (!Number.isFinite(value)) return "-";
    const decimals = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value) || 1)));
    return value.toLocaleString("en", {minimumFractionDigits: decimals, maximumFractionDigits: decimals});
  };
  const change = (us, before) => { // in words that a sentence can end with
    const factor = digits(Math.max(us / before, before / us));
    return factor === digits(1) ? "as slow as its parent" : `${factor}x ${us < before ? "faster" : "slower"} than its parent`;
  };
  const made = (tag, text = "", attributes = {}) => {
    const element = document.createElement(tag);
    element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const linkTo = (name, text = name) => made("a", text, {href: addressOf(encodeURIComponent(name))});

  // ---------------------------------------------------------------- what a guess hides
  const parentOf = (stage) => stages.get(stage.from);
  const isGuessed = (stage) => !stage.reference && stage.us != null && parentOf(stage)?.us != null;
  const isKnown = (stage) => !isGuessed(stage) || guesses.has(stage.name);

  function hideMeasurements() {
    document.documentElement.classList.toggle("lesson", isLesson);
    find("#ladder h1.measured").hidden = isLesson;
    find("#ladder .hidden-headline").hidden = !isLesson;
    for (const row of all("#ladder a.row")) {
      const known = !isLesson || isKnown(stages.get(row.dataset.rung));
      row.classList.toggle("unknown", !known);
      row.dataset.label ??= row.getAttribute("aria-label");
      row.setAttribute("aria-label", known ? row.dataset.label : `${row.dataset.rung}, not guessed yet`);
    }
    for (const drawing of all("#ladder svg, #ladder .drawing")) {
      drawing.dataset.label ??= drawing.getAttribute("aria-label");
      drawing.setAttribute("aria-label", isLesson ? "The ladder, without its times" : drawing.dataset.label);
    }
    for (const text of all("#ladder svg > title, #ladder svg > desc, #ladder a.row > title")) {
      const row = text.closest("a.row");
      text.shownText ??= text.textContent;
      text.textContent = row ? row.getAttribute("aria-label") : isLesson ? "The ladder, without its times" : text.shownText;
    }
    score();
  }

  function points(stage) { // of 100: how much nearer the guess is than the parent's time, which is no guess
    const apart = (us) => Math.abs(Math.log(us / stage.us));
    const least = Math.max(apart(parentOf(stage).us), Math.log(data.least));
    return Math.round(100 * Math.max(0, 1 - apart(guesses.get(stage.name)) / least));
  }

  function score() {
    const line = find("#lesson");
    line.hidden = !isLesson;
    if (!isLesson) return;
    const all_ = [...stages.values()].filter(isGuessed);
    const done = all_.filter((stage) => guesses.has(stage.name));
    const mean = done.reduce((sum, stage) => sum + points(stage), 0) / (done.length || 1);
    const next = all_.find((stage) => !guesses.has(stage.name) && isKnown(parentOf(stage)));
    line.replaceChildren(made("strong", "Lesson"), ` ${done.length} of ${all_.length} rungs guessed`);
    if (done.length) line.append(`, ${Math.round(mean)} of 100 points on average`);
    line.append(". ");
    if (next) line.append("Next: ", linkTo(next.name), ". ");
    const again = made("button", "Start over", {type: "button", class: "quiet"});
    again.addEventListener("click", () => { guesses.clear(); keepGuesses(); hideMeasurements(); route(); });
    const leave = made("button", "Leave the lesson", {type: "button", class: "quiet"});
    leave.addEventListener("click", () => { isLesson = false; hideMeasurements(); location.hash = "#/"; route(); });
    line.append(again, " ", leave);
  }

  // ---------------------------------------------------------------- a rung
  function showRung(stage) {
    const article = shown(data.rungs[stage.name]);
    const parent = parentOf(stage);
    if (isLesson && isGuessed(stage) && !isKnown(parent)) {
      find(".guess", article)?.remove();
      find(".measured", article).remove();
      find(".parent-time", article)?.remove();
      find(".verdict", article).append("First guess ", linkTo(parent.name), ", the rung that it climbs from.");
    } else if (isGuessed(stage) && !guesses.has(stage.name) && (isLesson || !showsAlways)) {
      askFor(stage, article);
    } else if (guesses.has(stage.name)) {
      tellVerdict(stage, article);
    }
    if (isLesson) find("[data-always]", article)?.remove();
    watchTimelines(article, stage);
    for (const file of all("[data-file]", article)) {
      file.addEventListener("toggle", () => {
        if (!file.open || find("pre", file)) return;
        const frame = made("div", "", {class: "drawing code", role: "region", tabindex: "0", "aria-label": file.dataset.file});
        frame.append(made("pre"));
        find("pre", frame).innerHTML = data.files[file.dataset.file];
        file.append(frame);
        widths.observe(frame);
      });
    }
    for (const link of all("#rungs a")) { // with the times that need no guess any more
      const one = stages.get(decodeURIComponent(link.hash.slice(1)));
      const isShown = one?.us != null && (isKnown(one) || (showsAlways && !isLesson));
      find("span", link)?.remove();
      if (isShown) link.append(made("span", ` ${digits(one.us)}`));
      if (decodeURIComponent(link.hash.slice(1)) === stage.name) {
        link.setAttribute("aria-current", "page");
        link.scrollIntoView({block: "nearest"});
      }
      else link.removeAttribute("aria-current");
    }
    find("#rungs").hidden = false;
    return stage.shown;
  }

  function askFor(stage, article) {
    const form = find(".guess", article), slider = find("#guess", form), parentUs = parentOf(stage).us;
    const times = [...stages.values()].filter((one) => !one.reference && one.us).map((one) => one.us);
    // In whole steps from the parent's time: it begins there exactly, and no rounding puts an end out of its own range.
    const [low, high] = [[Math.min(...times) / 3, Math.floor], [Math.max(...times) * 1.5, Math.ceil]]
      .map(([us, round]) => round(Math.log10(us / parentUs) * STEPS));
    for (const [name, value] of Object.entries({min: low, max: high, value: 0})) slider.setAttribute(name, value);
    const at = (value) => parentUs * 10 ** (value / STEPS);
    const us = () => at(slider.value);
    const told = (value) => `${digits(at(value))} us`;
    find(".low", form).textContent = told(low);
    find(".high", form).textContent = told(high);
    find(".scale", form).style.setProperty("--parent", -low / (high - low));
    find(".scale", form).classList.toggle("late", -low > (high - low) / 2);
    const tell = () => {
      find("output strong", form).textContent = told(slider.value);
      find("output span", form).textContent = change(us(), parentUs);
      slider.setAttribute("aria-valuetext", `${digits(us())} microseconds per step, ${change(us(), parentUs)}`);
    };
    let isMoved = false;
    slider.addEventListener("input", () => {
      isMoved = true;
      find(".unmoved", form).textContent = "";
      tell();
    });
    tell();
    find(".measured", article).hidden = true;
    form.hidden = false;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!isMoved) {
        find(".unmoved", form).textContent = "Move the slider first: it stands at the parent's time.";
        slider.focus();
        return;
      }
      guesses.set(stage.name, us());
      keepGuesses();
      form.hidden = true;
      find(".measured", article).hidden = false;
      tellVerdict(stage, article);
      hideMeasurements();
      find("h2.time", article).focus();
    });
    find("[data-always]", form).addEventListener("click", () => {
      showAll(true);
      find("h2.time").focus();
    });
  }

  function showAll(does) { // or guesses again; the address remembers it
    showsAlways = does;
    history.replaceState(null, "", location.hash.replace(ALL, "") + (does ? ALL : ""));
    route();
  }

  function tellVerdict(stage, article) {
    const guess = guesses.get(stage.name), before = parentOf(stage).us, won = points(stage);
    const words = won >= CLOSE ? "Close" : guess > stage.us ? "Faster than you thought" : "Slower than you thought";
    find(".verdict", article).replaceChildren(
      made("strong", `${words}: ${won} of 100 points.`), ` You guessed ${digits(guess)} us, ${change(guess, before)}; ` +
      `measured: ${digits(stage.us)} us, ${change(stage.us, before)}.`);
  }

  // ---------------------------------------------------------------- guesses outlive a reload, in this tab alone
  const keptAs = () => `guesses ${data.run.created} ${point ?? ""}`;

  function keepGuesses() {
    try { sessionStorage.setItem(keptAs(), JSON.stringify([...guesses])); } catch { /* a browser may refuse files */ }
  }

  function keptGuesses() {
    try {
      const kept = JSON.parse(sessionStorage.getItem(keptAs()) ?? "[]");
      return new Map(kept.filter(([name, us]) => us > 0 && stages.has(name) && isGuessed(stages.get(name))));
    } catch { return new Map(); }
  }

  // ---------------------------------------------------------------- timelines
  function watchTimelines(article, stage) {
    const told = find(".told", article), bars = all("[data-bars]", article).flatMap(drawBars);
    if (told) {
      const tell = (bar) => {
        all(".chosen", article).forEach((one) => one.classList.remove("chosen"));
        bar.classList.add("chosen");
        told.textContent = bar.getAttribute("aria-label");
      };
      let at = 0;
      bars.forEach((bar, index) => {
        bar.setAttribute("tabindex", index ? "-1" : "0");
        bar.addEventListener("pointerenter", () => tell(bar));
        bar.addEventListener("focus", () => { at = index; tell(bar); });
        bar.addEventListener("keydown", (event) => {
          const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
          if (!step || !bars[at + step]) return;
          event.preventDefault();
          event.stopPropagation();
          bar.setAttribute("tabindex", "-1");
          bars[at + step].setAttribute("tabindex", "0");
          bars[at + step].focus();
        });
      });
    }
    find("[data-perfetto]", article)?.addEventListener("click", () => openInPerfetto(stage));
  }

  function drawBars(group) { // a row of a stage's timeline, where its drawing says
    const place = Object.fromEntries(["left", "scale", "top", "height"].map((name) => [name, Number(group.dataset[name])]));
    const words = data.bars[group.dataset.bars], made_ = [];
    for (const [index, [row, , kind, start, duration]] of data.spans[group.dataset.bars].entries()) {
      if (row !== group.dataset.row) continue;
      const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      const given = {x: place.left + start * place.scale, y: place.top, height: place.height,
                     width: Math.max(duration * place.scale, NARROWEST), class: `f-${data.colours[kind]}`,
                     role: "img", "aria-label": words[index], "data-k": index};
      for (const [name, value] of Object.entries(given)) bar.setAttribute(name, value);
      made_.push(bar);
    }
    group.replaceChildren(...made_);
    return made_;
  }

  function openInPerfetto(stage) {
    const names = [...new Set(data.spans[stage.name].map(([row]) => row))];
    const rows = Object.fromEntries(names.map((name, index) => [name, index + 1]));
    const events = data.spans[stage.name].map(([row, name, kind, start, duration]) => (
      {ph: "X", pid: 1, tid: rows[row], name, cat: kind, ts: start, dur: duration}));
    for (const [name, tid] of Object.entries(rows))
      events.unshift({ph: "M", pid: 1, tid, name: "thread_name", args: {name}});
    const buffer = new TextEncoder().encode(JSON.stringify({traceEvents: events})).buffer;
    const origin = "https://ui.perfetto.dev";
    const opened = window.open(origin);
    if (!opened) return;
    const asking = setInterval(() => opened.postMessage("PING", origin), 100);
    const stop = setTimeout(() => clearInterval(asking), 60000);
    window.addEventListener("message", function answered(event) {
      if (event.origin !== origin || event.data !== "PONG") return;
      clearInterval(asking);
      clearTimeout(stop);
      window.removeEventListener("message", answered);
      opened.postMessage({perfetto: {buffer, title: `${stage.name}: three steps`, keepApiOpen: false}}, origin);
    });
  }

  // ---------------------------------------------------------------- trust
  find("#shown").addEventListener("click", (event) => { // a stage's checks in words, below its cells
    const row = event.target.closest("table.trust tbody tr"), button = row && find("button", row);
    if (!button || event.target.closest("a")) return;
    const isOpen = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!isOpen));
    if (isOpen) { row.nextElementSibling.remove(); return; }
    const list = made("ul", "", {class: "plain"}), frame = made("td", "", {class: "why", colspan: row.cells.length});
    for (const cell of all(".cell", row)) {
      const line = made("li");
      line.append(cell.cloneNode(), ` ${cell.title}`);
      list.append(line);
    }
    frame.append(list);
    row.after(made("tr"));
    row.nextElementSibling.append(frame);
  });

  // ---------------------------------------------------------------- the address
  function shown(html) {
    const place = find("#shown");
    place.innerHTML = html; // made by the program from escaped text; the policy of this page runs no script in it
    return place;
  }

  function addressOf(place) { // with a study's point before a colon, and the lesson, so that a reload stays in both
    if (place === "/study") return "#/study";
    const within = !isLesson ? place : ["", "/"].includes(place) ? "lesson" : `lesson/${place}`;
    return point === null ? `#${within}` : `#${encodeURIComponent(point)}:${within}`;
  }

  function placeAsked() { // without point and lesson, which it chooses
    let place = location.hash.slice(1).replace(ALL, "");
    if (whole.points) {
      const asked = place.includes(":") ? place.split(":", 2) : [null, place || "/study"];
      const wanted = asked[0] === null ? point : decodeURIComponent(asked[0]);
      place = asked[1];
      if (wanted !== point && Object.hasOwn(whole.points, wanted)) choosePoint(wanted);
    }
    if (/^lesson(\/|$)/.test(place)) {
      place = place.slice("lesson/".length) || "/";
      if (!isLesson) { isLesson = true; hideMeasurements(); }
    }
    const address = addressOf(place) + (showsAlways && !isLesson ? ALL : "");
    if (whole.points || location.hash) history.replaceState(null, "", address);
    return place;
  }

  function choosePoint(name) {
    point = name;
    const rungs = Object.entries(whole.rungs).map(([stage, views]) => [stage, views[name]]);
    data = {...whole.points[name], rungs: Object.fromEntries(rungs)};
    stages = new Map(data.run.stages.map((stage) => [stage.name, stage]));
    guesses = guessesAt.get(name) ?? guessesAt.set(name, keptGuesses()).get(name);
    find("#ladder").innerHTML = data.ladder;
    find("#rungs ol").innerHTML = data.list;
    find("#point").value = name;
    watchToggles();
    hideMeasurements();
  }

  function route() {
    const asked = location.hash.replace(ALL, "");
    if (location.hash.endsWith(ALL)) showsAlways = true;
    let place = placeAsked();
    try { place = decodeURIComponent(place); } catch { /* a lone % is shown as it is */ }
    const view = {"/floor": "Floor", "/trust": "Trust", "/details": "Details", "/study": study && firstTitle}[place];
    const stage = stages.get(place);
    const isLadder = !view && !stage;
    const unknown = find("#unknown");
    unknown.hidden = !isLadder || ["", "/", "/study"].includes(place);
    unknown.textContent = unknown.hidden ? "" : `No rung called ${place} in this run.`;
    find("#ladder").hidden = !isLadder;
    find("#shown").hidden = isLadder;
    find("#rungs").hidden = true;
    let title = "";
    if (stage) title = showRung(stage);
    else if (place === "/study" && view) {
      title = view;
      for (const frame of all("[data-picture]", shown(study))) frame.innerHTML = whole.pictures[frame.dataset.picture];
    }
    else if (view && isLesson && [...stages.values()].some((one) => !isKnown(one))) {
      title = view;
      shown("").append(made("h1", view), made("p", "This view shows measurements. It opens once every rung is guessed.", {class: "lead"}));
    } else if (view) { title = view; shown(data.views[place.slice(1)] + (place === "/details" ? whole.terms : "")); }
    document.documentElement.dataset.view = isLadder ? "ladder" : stage ? "rung" : place.slice(1);
    document.title = place === "/study" && view ? view : title ? `${title} - ${data.run.heading}` : isLesson ? `Lesson - ${data.run.heading}` : firstTitle;
    for (const link of all("header nav a")) {
      const own = decodeURIComponent(link.hash.slice(1));
      const current = own === "lesson" ? isLesson && isLadder : own === "/" ? isLadder && !isLesson : own === place;
      current ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
    }
    document.documentElement.dataset.place = asked || location.hash; // a study's first view gives itself an address
    find("#all").checked = showsAlways;
    watchWidths();
    if (stage || view) { find("#view").focus({preventScroll: true}); window.scrollTo(0, 0); }
  }
  const firstTitle = document.title;
  let study = ""; // its view, if this is the page of one

  // ---------------------------------------------------------------- the ladder
  function watchToggles() {
    for (const toggle of all(".toggles input")) {
      toggle.addEventListener("change", () => {
        const hidden = new Set(all(".toggles input").filter((one) => !one.checked).map((one) => one.value));
        for (const row of all("#ladder a.row")) {
          row.classList.toggle("off", hidden.has(row.dataset.precision));
          hidden.has(row.dataset.precision) ? row.setAttribute("tabindex", "-1") : row.removeAttribute("tabindex");
        }
      });
    }
  }

  function watchParents() { // while one points at a rung of the picture, or the focus is there
    const place = find("#ladder");
    const mark = (row) => {
      const parent = row && stages?.get(row.dataset.rung)?.from;
      for (const one of all("a.row", place)) one.classList.toggle("parent", Boolean(parent) && one.dataset.rung === parent);
    };
    for (const [kind, begins] of [["pointerover", true], ["pointerleave", false], ["focusin", true], ["focusout", false]])
      place.addEventListener(kind, ({target}) => mark(begins ? target.closest("a.row") : null));
  }

  function watchKeys() {
    document.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, .drawing, summary, button")
          && !event.target.closest("a.row")) return;
      const row = event.target.closest("a.row");
      const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
      if (row && step) {
        const rows = all("a.row:not(.off)", row.closest("svg"));
        const next = rows[rows.indexOf(row) + step];
        if (next) { event.preventDefault(); next.focus(); }
      } else if (!row && {ArrowRight: 1, ArrowLeft: 1}[event.key]) {
        const link = find(`#shown:not([hidden]) .steps a[rel=${event.key === "ArrowRight" ? "next" : "prev"}]`);
        if (link) { event.preventDefault(); location.hash = link.hash; }
      }
    });
  }

  async function unpack() {
    const packed = Uint8Array.from(atob(find("#packed").textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const pieces = (await new Response(stream).text()).split("\n"), order = JSON.parse(pieces.pop()); // as html.py has it
    return JSON.parse(order.map((number) => pieces[number]).join(""));
  }

  async function begin() {
    if (!("DecompressionStream" in window)) {
      find("#unpacking").textContent = "This browser cannot unpack the rungs: they need DecompressionStream, which Chrome has " +
        "since version 80, Firefox since 113 and Safari since 16.4. report.md beside this page has the same numbers.";
      return;
    }
    whole = await unpack();
    document.documentElement.classList.add("ready");
    watchKeys();
    watchParents();
    find(".skip").addEventListener("click", (event) => { event.preventDefault(); find("#view").focus(); });
    find("#all").addEventListener("change", (event) => { showAll(event.target.checked); find("#all").focus(); });
    if (whole.points) {
      study = find("#ladder").innerHTML;
      if (!Object.keys(whole.points).length) return;
      choosePoint(Object.keys(whole.points)[0]);
      find("#point").addEventListener("change", (event) => {
        const place = location.hash === "#/study" ? "/" : location.hash.split(":")[1];
        location.hash = `#${encodeURIComponent(event.target.value)}:${place}`;
      });
    } else {
      data = whole;
      stages = new Map(data.run.stages.map((stage) => [stage.name, stage]));
      guesses = keptGuesses();
      watchToggles();
    }
    window.addEventListener("hashchange", route);
    route();
  }
  begin();
})();
