"use strict";
// How the one-kernel rungs divide a network, as far as their times depend on it: stages/persistent/grid_plan.py and
// cluster_plan.py, and the limits of streamed/last_layer_head.py. tests/reports/explorer/test_advise_page.py compares.
const plans = (() => {
  const up = (count, multiple) => Math.ceil(count / multiple) * multiple;
  const floats = (rows, cols, parts = 1) => Math.floor(parts * rows * (Math.ceil(cols / 16) | 1) * 16 / 2);
  const sum = (list, of = (one) => one) => list.reduce((total, one, index) => total + of(one, index), 0);
  const MOST_ELEMENTS = 2 ** 30;
  const SHARES = [1.0, 0.85, 0.7, 0.6, 0.5, 0.42, 0.36, 0.3];

  function tailCycles(inputs, outputs, rows, blocks) {
    const size = inputs * outputs;
    return Math.max(4 * size / 40, 4 * size * Math.min(rows, blocks) / 2700) + Math.ceil(rows / blocks) * size / 16;
  }

  function* ways(layers, rows, blocks) {
    const last = layers.length - 1, most = Math.max(last, 1), wides = [];
    for (let wide = 1; wide <= most; wide++) {
      const cycles = sum(layers.slice(wide), (one) => tailCycles(one.inputs, one.outputs, rows, blocks));
      if (wide === most || cycles < (last - wide) * (4 * 1900 + 4000)) wides.push(wide);
    }
    for (const [held, kept] of [[true, true], [true, false], [false, true], [false, false]])
      for (const wide of wides) yield [wide, held, kept];
  }

  function helperCycles(tiles, tasks, blocks, cycles) {
    const idle = blocks - tiles, byAll = 2000 * Math.ceil(tasks / blocks);
    return idle > 0 ? Math.min(byAll, Math.max(0, 2000 * Math.ceil(tasks / idle) - cycles)) : byAll;
  }

  function tileCycles(one, rows, blocks, parts, isFirst) {
    const ofInputs = isFirst ? 1 : parts;
    const product = (m, n, k, ofLeft) => {
      const down = Math.ceil(m / 16), across = Math.floor(n / 8);
      const beside = down * across > 32 ? 4 : down * across > 16 ? 2 : 1;
      const rounds = Math.ceil(down * Math.ceil(across / beside) / 16);
      let products = 0;
      for (let left = 0; left < ofLeft; left++) for (let right = 0; right < parts; right++) products += left + right < parts;
      return rounds * Math.floor(k / 16) * Math.max(4 * beside * products * 6.5, 16 * (4 * ofLeft + 2 * parts * beside), 100);
    };
    const forward = product(rows, one.tileN, one.tileK, ofInputs);
    const backward = isFirst ? 0 : product(rows, one.tileK, one.tileN, parts);
    const update = product(one.tileK, one.tileN, rows, ofInputs);
    const reading = 4 * rows * (one.tileN + (isFirst ? 0 : one.tileK)) / 40;
    const sums = rows * (one.slices * one.outputs + (isFirst ? 0 : one.columns * one.inputs));
    return Math.ceil(one.slices * one.columns / blocks) * (forward + backward + update + reading) + 8 * sums / 2700 + 40 * up(one.slices, 16);
  }

  function cut(layer, rows, chunk, blocks, tasks, held, space, parts, isFirst) {
    const outputs = isFirst ? 8 : 16;
    let best = null;
    for (let tileK = 16; tileK <= Math.min(up(layer.inputs, 16), 512); tileK += 16)
      for (let tileN = outputs; tileN <= Math.min(up(layer.outputs, outputs), 256); tileN += outputs) {
        const slices = Math.ceil(layer.inputs / tileK), columns = Math.ceil(layer.outputs / tileN);
        if (held && slices * columns > blocks) continue;
        const inputs = isFirst ? (held ? 2 : 1) * floats(chunk, tileK) : floats(chunk, tileK, parts);
        if (floats(tileK, tileN, held ? 3 : parts) + inputs + floats(chunk, tileN, parts) > space) break;
        const tile = {...layer, tileK, tileN, slices, columns};
        let cycles = tileCycles(tile, rows, blocks, parts, isFirst);
        if (isFirst) cycles += helperCycles(slices * columns, tasks, blocks, cycles);
        if (!best || cycles < best.cycles) best = {cycles, tile};
      }
    return best && best.tile;
  }

  function fits(layers, classes, steps, rows, chunk, wide, held, kept, parts, sharedBytes) {
    const strides = layers.map((one, index) => {
      const above = layers[Math.min(index + 1, layers.length - 1)];
      return Math.max(up(one.outputs, 32), one.columns * one.tileN, above.slices * above.tileK);
    });
    const widest = Math.max(...strides.slice(0, wide)), tiled = layers.slice(0, wide);
    const partials = sum(strides, (stride, index) => 2 * Math.floor(rows * (index < wide ? widest : stride) / (parts === 1 ? 2 : 1)));
    const sums = tiled.map((one, index) => rows * one.slices * one.columns * Math.max(one.tileN, index ? one.tileK : 0));
    if (Math.max(steps * tiled[0].slices * rows * tiled[0].tileK, partials + Math.max(...sums)) > MOST_ELEMENTS) return false;
    const inputsAt = held ? sum(tiled, (one) => floats(one.tileK, one.tileN, 3)) + 2 * floats(rows, tiled[0].tileK) : 0;
    const inputs = [floats(chunk, 32, parts), 512, ...tiled.slice(1).map((one) => floats(chunk, one.tileK, parts))];
    const doutputsAt = inputsAt + Math.max(...inputs, held ? 0 : floats(chunk, tiled[0].tileK));
    const weightsAt = doutputsAt + Math.max(...[32, ...tiled.map((one) => one.tileN)].map((cols) => floats(chunk, cols, parts)));
    const end = weightsAt + (held ? 0 : Math.max(...tiled.map((one) => floats(one.tileK, one.tileN, parts))));
    let at = inputsAt + up(2 * (sum(layers.slice(wide), (one) => one.inputs) + classes), 4) + 512;
    if (kept) for (const one of layers.slice(wide)) at = up(at, 32) + up(one.inputs * one.outputs, 4);
    return 4 * Math.max(end, at) <= sharedBytes;
  }

  const layersOf = ({sizes}) => sizes.slice(1).map((outputs, index) => ({inputs: sizes[index], outputs, tileK: 0, tileN: 0, slices: 0, columns: 0}));

  function grid(network, blocks, sharedBytes, parts) { // null if no division fits
    const rows = up(network.batch, 16), layers = layersOf(network), kept = new Map();
    const cached = (layer, index, ...rest) => {
      const key = [layer.inputs, layer.outputs, index === 0, ...rest].join();
      if (!kept.has(key)) kept.set(key, cut(layer, rows, rest[0], blocks, rest[1], rest[2], rest[3], parts, index === 0));
      return kept.get(key);
    };
    for (const [wide, held, isKept] of ways(layers, rows, blocks))
      for (const ofOthers of SHARES)
        for (const ofFirst of SHARES) {
          const chunk = held ? rows : Math.min(rows, 64), small = layers.slice(wide);
          const tasks = sum(small, (one) => Math.ceil(one.outputs / 32) * Math.ceil(one.inputs / 32));
          const tiled = layers.slice(0, wide).map((one, index) =>
            cached(one, index, chunk, tasks, held, Math.trunc((index ? ofOthers : ofFirst) * sharedBytes / 4)));
          if (tiled.includes(null)) continue;
          if (fits([...tiled, ...small], network.sizes.at(-1), network.steps, rows, chunk, wide, held, isKept, parts, sharedBytes))
            return {
              barriers: 4 * wide - 2, held,
              cycles: sum(tiled, (one, index) => tileCycles(one, rows, blocks, parts, index === 0)),
              smallWeights: sum(small, (one) => one.inputs * one.outputs),
            };
        }
    return null;
  }

  function cluster({sizes, batch, steps}, halves, needsHidden) { // its hops; null if it does not fit
    const hidden = sizes.slice(1, -1), [inputs, classes] = [sizes[0], sizes.at(-1)];
    if (!hidden.length) {
      if (needsHidden || batch % 16 || batch > 128 || inputs >= 1024 || classes > 16) return null;
      const pairs = batch / 16, tiles = Math.ceil((inputs + 1) / 16);
      return steps * pairs * Math.max(tiles, 2 * pairs) * 256 > MOST_ELEMENTS ? null : 1;
    }
    if (hidden.length > 4 || batch > 128 || classes > 16) return null;
    const pairs = Math.ceil(batch / 16), slots = hidden.map((width) => Math.ceil(width / 128));
    const chunks = [...slots.map((count) => 16 * count), 2], matrix = 128 * halves, part = 2 * matrix;
    const logits = 16 * (part + Math.floor(part / 32));
    for (const shares of [false, true])
      for (const split of [1, 2, 4, 8, 16]) {
        const sliceTiles = Math.ceil(inputs / (16 * split)), own = slots[0] * split;
        const tasks = (own % 2 ? own : own / 2) * Math.ceil(pairs / 2);
        const counts = [1, 2, 4, 8, 16].filter((count) => count === 1 || (count * tasks <= 16 && count <= sliceTiles));
        for (const count of shares ? counts.reverse() : [counts.at(-1)]) {
          const first = own * count * pairs * part;
          if (shares && !(hidden.length > 1 && logits <= first)) continue;
          const bytes = 2 * sliceTiles * pairs * 512 + 2 * sliceTiles * own * 256
            + sum(slots, (slot, index) => slot * chunks[index + 1] * (256 + matrix) + slot * pairs * 2 * matrix + slot * 32)
            + first + sum(chunks.slice(1), (chunk) => chunk * pairs * part) + (shares ? 0 : logits) + 64;
          if (bytes <= 227 * 1024 - 512)
            return steps * sliceTiles * split * pairs * 256 > MOST_ELEMENTS ? null : 2 * (hidden.length + (split > 1));
        }
      }
    return null;
  }

  function takesLastLayer({sizes, batch}) {
    const inputs = sizes.at(-2), classes = sizes.at(-1), own = 4 * Math.ceil(inputs / 64);
    const bytes = 4 * (batch * (own | 4) + (own + 2 * batch) * classes + 512 * (2 * classes | 1) + 2 * batch);
    return sizes.length > 2 && classes <= 32 && inputs % 4 === 0 && inputs <= 16384 && bytes <= 224 * 1024;
  }

  return {grid, cluster, takesLastLayer};
})();
