"use strict";
// What `run_ladder.py advise` says, in the page: the model of ladder/run/expected.py and outlook.py, the verdict of
// reports/facts/advice.py. Its numbers and sentences stand in the page's JSON.
const advice = (() => {
  const model = JSON.parse(document.getElementById("model").textContent);
  const names = Object.keys(model.stages);
  const home = model.chips.find((one) => one.name === model.chip);
  const isFloat32 = (name) => model.stages[name].precision === "float32";
  const product = (list) => list.reduce((total, one) => total * one, 1);
  const least = (list, of) => list.reduce((best, one) => best === null || of(one) < of(best) ? one : best, null);

  function networkOf(hidden, batch, images = 60000) {
    const sizes = [784, ...hidden, 10];
    const weights = sizes.slice(1).reduce((total, outputs, index) => total + (sizes[index] + 1) * outputs, 0);
    return {hidden, sizes, batch, weights, images, steps: Math.floor(images / batch)};
  }

  function networkTerms({sizes, batch, weights}) {
    const millions = weights / 1e6;
    return {
      "step": 1, "layer": sizes.length - 1, "image": batch, "million weights": millions, "million products": batch * millions,
      "million products, small batch": batch <= model.small_batch ? batch * millions : 0,
    };
  }

  function termsOf(name, network, chip) { // null where the stage does not take the network
    const {grid, cluster, needs_hidden, last_layer} = model.stages[name], found = {...networkTerms(network), "hop": 0};
    if (last_layer && !plans.takesLastLayer(network)) return null;
    if (cluster) {
      found.hop = plans.cluster(network, cluster, needs_hidden);
      if (found.hop === null) return null;
    }
    if (grid) {
      if (!plans.grid(network, 1, 65536, grid)) return null;
      const plan = plans.grid(network, chip.multiprocessors, chip.shared_bytes, grid);
      if (!plan) return null;
      found["barrier"] = plan.barriers;
      found["thousand cycles"] = plan.cycles / 1e3;
      found["thousand cycles, weights in L2"] = plan.held ? 0 : plan.cycles / 1e3;
      found["thousand weights of rows"] = Math.ceil(network.batch / chip.multiprocessors) * plan.smallWeights / 1e3;
    }
    return found;
  }

  function scaleOf(network, chip) { // how many times as long another GPU takes for a term
    const clock = home.clock_mhz / chip.clock_mhz, streams = 8 * network.weights > chip.l2_mib * 1048576;
    const work = streams ? home.memory_gb_s / chip.memory_gb_s : clock * home.multiprocessors / chip.multiprocessors;
    return (term) => term.startsWith("million") ? work : term.startsWith("thousand") ? clock : 1;
  }

  function expected(network, chip, scale) { // us a step by stage; null of a network larger than all recorded ones
    const sizes = networkTerms(network);
    if (Object.keys(sizes).some((term) => sizes[term] > model.largest[term])) return null;
    const found = {};
    for (const name of names) {
      const {on, us} = model.stages[name];
      if (!us) continue; // it has no model, and is told where it is recorded
      if (on && !(on in found)) continue;
      const terms = termsOf(name, network, chip);
      if (!terms) continue;
      const own = Object.keys(us).reduce((total, term) => total + us[term] * terms[term] * scale(term), 0);
      if (own + (found[on] || 0) > 0) found[name] = own + (found[on] || 0);
    }
    return found;
  }

  function doublings(network, run) {
    if (run.hidden.join() === network.hidden.join() && run.batch === network.batch) return 0;
    const other = networkOf(run.hidden, run.batch);
    const pairs = [[network.sizes.length - 1, other.sizes.length - 1], [network.weights, other.weights], [network.batch, run.batch]];
    return pairs.reduce((total, [one, two]) => total + Math.abs(Math.log2(one / two)), 0) || 1;
  }

  function median(list) {
    const sorted = [...list].sort((a, b) => a - b), half = sorted.length >> 1;
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }

  const recordedOn = (chip) => model.runs.filter((run) => run.chip === chip.name);

  function outlook(network, chip) { // every stage with its range; null of a network larger than all recorded ones
    const isGuess = chip.name !== model.chip, plain = expected(network, chip, () => 1);
    if (!plain) return null;
    const scaled = isGuess ? expected(network, chip, scaleOf(network, chip)) : plain;
    const far = recordedOn(home).map((run) => ({run, far: doublings(network, run)}));
    const own = recordedOn(chip).filter((run) => doublings(network, run) === 0);
    const isTold = (name) => model.stages[name].us ? name in plain && name in scaled && chip.sm >= model.stages[name].sm : own.some((run) => name in run.us);
    return names.filter(isTold).map((name) => {
      const stage = model.stages[name], having = far.filter(({run}) => name in run.us);
      const nearest = Math.min(...having.map((one) => one.far)), recorded = own.filter((run) => name in run.us), isRecorded = recorded.length > 0;
      const onceMore = chip.carrying === null || stage.is_launched ? Math.log1p(stage.most) : chip.carrying;
      let carried = [plain[name], scaled[name]], error = Math.log1p(stage.most) * (1 + model.wider * Math.max(nearest - 1, 0)) + isGuess * onceMore;
      if (isRecorded) {
        const us = median(recorded.map((run) => run.us[name]));
        [carried, error] = [[us, us], Math.log1p(stage.again)];
      }
      return {
        name, isRecorded, carried, prepare: stage.us ? stage.prepare_s : median(recorded.map((run) => run.prepare_s[name])), us: Math.sqrt(product(carried)),
        low: Math.min(...carried) * Math.exp(-error), high: Math.max(...carried) * Math.exp(error),
      };
    });
  }

  function deciding(stages) {
    const fastest = (list) => least(list, (one) => one.us);
    const rungs = stages.filter(({name}) => !model.stages[name].is_reference);
    const exact = fastest(rungs.filter(({name}) => isFloat32(name))), lower = fastest(rungs.filter(({name}) => !isFloat32(name)));
    const us = (name) => (stages.find((one) => one.name === name) || {us: Infinity}).us;
    const decides = ({name}) => !(name in model.in_float32) || us(name) < us(model.in_float32[name]);
    const found = model.references.map((name) => stages.find((one) => one.name === name)).filter(Boolean).filter(decides);
    return [...found, ...(exact ? [exact] : []), ...(lower && (!exact || lower.us < exact.us) ? [lower] : [])];
  }

  function gain(slow, fast) {
    const ends = slow.carried.map((us, index) => us / fast.carried[index]);
    const error = Math.hypot(...[slow, fast].map((one) => Math.log(one.high / Math.max(...one.carried))));
    const times = Math.sqrt(product(ends)), [least, most] = [Math.min(...ends) / Math.exp(error), Math.max(...ends) * Math.exp(error)];
    return {times, isSure: least > model.noise, text: `${rough(times)}x (${rough(least)}-${rough(most)})`};
  }

  const decimals = (value, digits = 3) => value === 0 ? digits - 1
    : Math.min(Math.max(digits - 1 - Number(value.toExponential(digits - 1).split("e")[1]), 0), 6);
  const rounding = {roundingMode: "halfEven"}; // as Python does
  const number = (value, places) => value.toLocaleString("en", {minimumFractionDigits: places, maximumFractionDigits: places, ...rounding});
  const microseconds = (value) => number(value, decimals(value));
  const rough = (value) => number(value, decimals(value, 2));

  function duration(value) {
    if (value < 9.95) return value >= 0.0995 ? `${Number(value.toPrecision(2))} s` : `${value.toFixed(2)} s`;
    if (value < 59.5) return `${number(value, 0)} s`;
    const whole = Math.round(value), minutes = Math.floor(whole / 60), pad = (part) => String(part).padStart(2, "0");
    return minutes < 60 ? `${minutes} min ${pad(whole % 60)} s` : `${Math.floor(minutes / 60)} h ${pad(minutes % 60)} min`;
  }

  const counted = (epochs) => `${epochs.toLocaleString("en")} epoch${epochs === 1 ? "" : "s"}`;
  const precision = (name) => model.stages[name].precision_words;
  const prepare = (one) => one.prepare;
  const training = (one, epochs, network) => prepare(one) + one.us * epochs * network.steps / 1e6;
  const filled = (name, given = {}) => model.sentences[name].replace(/{(\w+)}/g, (_, key) => given[key]);

  function verdict(stages, epochs, network) { // the sentences of reports/facts/advice.py
    const by = Object.fromEntries(stages.map((one) => [one.name, one])), said = [];
    const eager = by["torch-eager"], compiled = by["torch-compile"];
    const among = (list) => least(list.map((name) => by[name]).filter(Boolean), (one) => one.us);
    const graphs = ["torch-graph", "torch-graph-amp"].map((name) => by[name]).filter(Boolean).sort((one, other) => other.us - one.us), graph = graphs.at(-1);
    const ofGraph = gain(compiled, graph), ofCompiling = gain(eager, compiled);
    const paysFrom = (slow, one) => Math.max(1, Math.ceil((prepare(one) - prepare(slow)) / ((slow.us - one.us) * network.steps / 1e6)));
    let best = []; // ways, each from as many epochs on until the next one
    for (const one of [compiled, ...graphs.filter((one) => gain(compiled, one).isSure)].filter((one) => gain(eager, one).isSure)) {
      const least = Math.max(...[eager, ...best.map(([way]) => way)].map((slow) => paysFrom(slow, one)));
      best = [...best.filter(([, from]) => from < least), [one, least]];
    }
    if (best.length) {
      const ways = best.map(([{name}, least]) => filled("way", {rung: name, epochs: counted(least)})).join(filled("then"));
      const now = ["eager mode", ...best.filter(([, least]) => least <= epochs).map(([{name}]) => `\`${name}\``)];
      said.push(filled(now.length > best.length ? "pays" : "not_yet", {epochs: counted(epochs), now: now.at(-1), ways}));
    }
    if (ofGraph.isSure) said.push(filled("capture", {eager: gain(eager, graph).text, compiled: ofGraph.text, precision: precision("torch-compile"), own: precision(graph.name)}));
    else {
      const stay = ofCompiling.isSure ? filled("use_compiled", {eager: ofCompiling.text, precision: precision("torch-compile")}) : filled("stay");
      const given = {stay, times: ofGraph.text, own: precision(graph.name)};
      said.push(filled(ofGraph.times > model.worth_trying ? "may_capture" : "no_capture", given));
    }
    const library = among(Object.values(model.in_float32)), fastestLibrary = among(Object.entries(model.in_float32).flat());
    const rungs = stages.filter(({name}) => !model.references.includes(name));
    if (rungs.length) {
      const exact = rungs[0], lower = rungs.at(-1), found = gain(library, exact);
      if (found.isSure && isFloat32(exact.name)) said.push(filled("kernels", {times: found.text, rung: exact.name, reference: library.name}));
      else said.push(filled("no_kernels", {reference: library.name, may: found.times > model.worth_trying ? filled("may_kernels", {rung: exact.name, times: found.text}) : ""}));
      const reference = fastestLibrary.name, own = precision(reference), ofLibrary = gain(library, fastestLibrary), ofLower = gain(fastestLibrary, lower);
      if (ofLibrary.isSure) said.push(filled("lower_library", {precision: own, reference, times: ofLibrary.text, other: library.name}));
      if (lower !== exact && ofLower.isSure) said.push(filled("lower", {precision: precision(lower.name), rung: lower.name, times: ofLower.text, reference, own}));
      else if (reference in model.in_float32) said.push(filled("no_lower", {reference}));
    }
    const seconds = (one) => training(one, epochs, network), fastest = least(stages, seconds);
    const worth = seconds(eager) < model.short_s ? filled("short") : "";
    const told = {epochs: counted(epochs), images: number(network.images, 0), eager: duration(seconds(eager)), best: duration(seconds(fastest)), rung: fastest.name, precision: precision(fastest.name), worth};
    return [said[0], ...(said.length > 1 ? [said.slice(1).join(" ")] : []), filled("time", told)];
  }

  function notes(stages, chip) { // those of reports/facts/advice.py
    const percent = (share) => `${number(100 * share, 0)}%`, known = stages.filter((one) => !one.isRecorded);
    const span = (key) => { const errors = known.map(({name}) => model.stages[name][key]); return [...new Set([Math.min(...errors), Math.max(...errors)].map(percent))].join(" to "); };
    const given = {median: span("median"), most: span("most"), others: known.length < stages.length ? "; other times are recorded" : "", and_gpu: chip.name === model.chip ? "" : " and on another GPU than the model's"};
    const [differ, least, most] = [model.eager_differs, ...model.dataloader].map((times) => times.toFixed(1));
    return [filled("range"), ...(known.length ? [filled("model", given)] : []), filled("host", {host: model.host, differ, least, most})].join(" ");
  }

  function guess(chip, network) {
    if (chip.name === model.chip) return "";
    const paths = recordedOn(chip).filter((run) => doublings(network, run) === 0).map((run) => run.path).join(", ");
    const a = paths ? model.some_guessed.replace("{paths}", paths) : model.all_guessed;
    return filled("guess", {a, gpu: model.gpu, memory: number(chip.memory_gb_s, 0), clock: number(chip.clock_mhz, 0), multiprocessors: chip.multiprocessors, launch: model.launch_us, others: ""});
  }

  const nearest = (network, chip) => least(recordedOn(chip).length ? recordedOn(chip) : recordedOn(home), (run) => doublings(network, run));

  return {model, networkOf, outlook, deciding, verdict, notes, guess, training, microseconds, number, decimals, duration, nearest};
})();
