"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const named = (name, value) => [...document.querySelectorAll(`[data-${name}]`)].filter((one) => !value || one.dataset[name] === value);

  // texts of hosts come into the page by this function alone, as text
  const element = (tag, className, ...children) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    made.append(...children);
    return made;
  };
  const cell = (value) => {
    if (!Array.isArray(value)) return element("td", "", value.length > data.short ? element("div", "", value) : value);
    if (value.length === 1) return element("td", "number", value[0]);
    const symbol = element("span", "", value[1]);
    symbol.setAttribute("aria-hidden", "true");
    return element("td", "", element("span", `mark ${value[0]}`, symbol, ` ${value[2]}`));
  };
  const row = (cells) => element("tr", "", ...cells.map(cell));

  // long tables: the next rows, some hundred at a time
  const STEP = 400;
  for (const button of named("more")) {
    const rows = data[button.dataset.more];
    let next = 0;
    button.addEventListener("click", () => {
      const body = document.getElementById(button.dataset.more).tBodies[0];
      body.append(...rows.slice(next, next + STEP).map(row));
      next += STEP;
      if (next >= rows.length) button.parentElement.remove();
      else button.textContent = `Show more rows: ${(rows.length - next).toLocaleString("en")} left`;
    });
  }

  // the search for a host
  const MOST = 20;
  for (const input of named("search")) {
    const name = input.dataset.search;
    const { columns, hosts, found, texts } = data[name];
    const [count] = named("count", name);
    const [results] = named("results", name);
    input.closest(".search").hidden = false;
    const show = () => {
      const wanted = input.value.trim().toLowerCase();
      results.replaceChildren();
      count.textContent = "";
      if (!wanted) return;
      const hits = hosts.map((_, index) => index).filter((index) => hosts[index][0].toLowerCase().includes(wanted));
      const more = hits.length > MOST ? `, the first ${MOST} shown` : "";
      count.textContent = `${hits.length} ${hits.length === 1 ? "host" : "hosts"}${more}`;
      if (!hits.length) return;
      const heads = columns.concat("Found").map((title) => {
        const head = element("th", "", title);
        head.scope = "col";
        return head;
      });
      const body = element("tbody", "", ...hits.slice(0, MOST).map((index) => {
        const line = row(hosts[index]);
        line.append(element("td", "", ...found[index].map((text) => element("div", "", texts[text]))));
        return line;
      }));
      const box = element("div", "scroll", element("table", "", element("thead", "", element("tr", "", ...heads)), body));
      box.tabIndex = 0;
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", "Hosts found");
      results.append(box);
    };
    input.addEventListener("input", show);
  }

  // which host a cell is of: worked out from the place, no element a cell
  for (const strips of named("strips")) {
    const { hosts, row: inRow, cell: size } = data[strips.dataset.strips];
    const [under] = named("under", strips.dataset.strips);
    strips.addEventListener("pointermove", (event) => {
      const picture = event.target.closest("svg.cells");
      if (!picture) return;
      const box = picture.getBoundingClientRect();
      const scale = picture.viewBox.baseVal.width / box.width / size;
      const column = Math.floor((event.clientX - box.left) * scale);
      const host = hosts[Math.floor((event.clientY - box.top) * scale) * inRow + column];
      if (host !== undefined && column < inRow) under.textContent = `${host}: ${picture.parentElement.querySelector("h3").textContent}`;
    });
  }

  // charts are drawn when they come into sight, and anew when the theme or the width changes
  const charts = new Map();
  // a colour of the style sheet as it is in this theme
  const swatch = element("span", "");
  swatch.hidden = true;
  document.body.append(swatch);
  const css = (name) => {
    swatch.style.color = `var(${name})`;
    return getComputedStyle(swatch).color;
  };
  const three = (value) => {
    if (value === null || value === undefined) return "";
    const size = Math.abs(value);
    if (size >= 99.95) return Math.round(value).toLocaleString("en");
    return size >= 9.995 ? value.toFixed(1) : size >= 0.9995 ? value.toFixed(2) : String(+value.toPrecision(3));
  };
  const bytes = (value) => {
    const units = [[2 ** 30, " GiB"], [2 ** 20, " MiB"], [2 ** 10, " KiB"]];
    const [size, unit] = units.find(([least]) => value >= least) ?? [1, " B"];
    return `${+(value / size).toPrecision(3)}${unit}`;
  };
  const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  const hues = () => (isDark() ? ["#8fb8ff", "#ffb86b", "#7fdca4", "#ff9eb5", "#c9b3ff", "#8be0e8", "#e6d66c", "#c8ced8"]
    : ["#1f5fbf", "#b35900", "#1c7d46", "#b3145a", "#5b3fa8", "#00707a", "#7a6a00", "#4d596b"]);
  const DASHES = ["solid", "dashed", "dotted", [10, 3, 2, 3], [3, 6], [12, 6], [6, 2, 1, 2, 1, 2], [1, 4]];
  const SYMBOLS = ["circle", "rect", "triangle", "diamond", "roundRect", "pin", "arrow", "emptyCircle"];
  let printing = false;
  const isDark = () => !printing && (root.dataset.theme === "dark" || (root.dataset.theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches));

  const base = () => ({
    animation: false,
    textStyle: { color: css("--ink"), fontFamily: "system-ui, DejaVu Sans, sans-serif" },
    color: hues(),
    // drawn in the picture: a tooltip of HTML would take hosts' texts for markup
    tooltip: { renderMode: "richText", confine: true, backgroundColor: css("--paper"), borderColor: css("--rule"),
      textStyle: { color: css("--ink"), fontSize: 12 } },
  });
  const axis = (more) => ({
    nameTextStyle: { color: css("--soft") }, axisLabel: { color: css("--soft"), ...more.axisLabel },
    axisLine: { lineStyle: { color: css("--soft") } }, splitLine: { lineStyle: { color: css("--rule") } }, ...without(more, "axisLabel"),
  });
  const without = (object, name) => Object.fromEntries(Object.entries(object).filter(([key]) => key !== name));

  const kinds = {
    // data: x is size, time or number; unit; lines of {name, points: [[x, y]], floor: bool}; limits of {name, value}
    lines: (chart, width) => {
      const text = chart.x === "size" ? bytes : chart.x === "time" ? (value) => new Date(value).toLocaleString("sv-SE") : three;
      const narrow = width < 560;
      const several = chart.lines.length > 1;
      const top = several ? 30 + 20 * Math.ceil(chart.lines.length / (narrow ? 1 : 2)) : 26;
      let plain = 0;
      return { height: 300 + top, option: {
        ...base(), grid: { left: 12, right: 24, top, bottom: chart.xName ? 28 : 8, containLabel: true },
        legend: { show: several, type: "plain", top: 0, left: 0, orient: narrow ? "vertical" : "horizontal", textStyle: { color: css("--ink"), fontSize: 12 }, itemWidth: 36,
          formatter: (name) => short(name, narrow ? 40 : 60) },
        tooltip: { ...base().tooltip, trigger: "item", formatter: (at) => `${short(at.seriesName, 60)}\n${text(at.value[0])}: ${three(at.value[1])} ${chart.unit}` },
        xAxis: axis({ type: chart.x === "size" ? "log" : chart.x === "time" ? "time" : "value", logBase: 2, splitNumber: narrow ? 4 : 8, name: chart.xName, nameLocation: "middle", nameGap: 26,
          min: "dataMin", max: "dataMax", axisLabel: { ...(chart.x === "time" ? {} : { formatter: text }), hideOverlap: true } }),
        yAxis: axis({ type: "value", name: chart.unit, scale: Boolean(chart.scale), axisLabel: { formatter: three } }),
        series: chart.lines.map((line) => {
          const place = line.floor ? plain - 1 : plain++;
          return { type: "line", name: line.name, data: line.points, symbolSize: 7, showSymbol: !line.floor,
            symbol: SYMBOLS[place % SYMBOLS.length], itemStyle: { color: hues()[place % 8] },
            lineStyle: { width: line.floor ? 1.5 : 2, type: line.floor ? [2, 3] : DASHES[place % DASHES.length], color: hues()[place % 8] } };
        }),
      } };
    },
    // data: rows, columns (names), cells of [row, column, value], unit, lower (less is better), blamed of [row, column]
    heat: (chart, width) => {
      const values = chart.cells.map((one) => one[2]);
      const middle = [...values].sort((one, other) => one - other)[Math.floor(values.length / 2)];
      // what scatters a little around its median is not to look like a fault
      const low = chart.lower ? Math.min(...values) : Math.min(...values, 0.6 * middle);
      const high = chart.lower ? Math.max(...values, 1.6 * middle) : Math.max(...values);
      const side = Math.max(14, Math.min(46, (width - 190) / chart.columns.length));
      const marked = new Set(chart.blamed.map(([one, other]) => `${one} ${other}`));
      // all of them light, or all dark: the figures in the cells are read on each
      const bad = isDark() ? "#9c3a34" : "#f29a90", good = isDark() ? "#1d3b63" : "#dbe9fb";
      const mean = isDark() ? "#665026" : "#f8dca8";
      const labels = side >= 34 && chart.columns.length <= 24;
      const names = { fontSize: 11, formatter: (name) => short(name, 18) };
      return { height: Math.max(170, side * chart.rows.length + 140), option: {
        ...base(), grid: { left: 8, right: 16, top: 8, bottom: 66, containLabel: true },
        tooltip: { ...base().tooltip, formatter: (at) => `${chart.rows[at.value[1]]} → ${chart.columns[at.value[0]]}\n${three(at.value[2])} ${chart.unit}${marked.has(`${at.value[1]} ${at.value[0]}`) ? "\n✕ blamed" : ""}` },
        xAxis: axis({ type: "category", data: chart.columns, position: "bottom", splitLine: { show: false }, axisLabel: { ...names, rotate: 60, interval: chart.columns.length > 48 ? "auto" : 0 } }),
        yAxis: axis({ type: "category", data: chart.rows, inverse: true, splitLine: { show: false }, axisLabel: { ...names, interval: chart.rows.length > 48 ? "auto" : 0 } }),
        visualMap: { min: low, max: high, calculable: false, orient: "horizontal", left: 0, bottom: 0, precision: 2,
          itemHeight: 120, text: [`${three(high)} ${chart.unit}`, three(low)],
          textStyle: { color: css("--ink") }, inRange: { color: chart.lower ? [good, mean, bad] : [bad, mean, good] } },
        series: [{ type: "heatmap", data: chart.cells.map(([line, column, value]) => ({
          value: [column, line, value],
          itemStyle: marked.has(`${line} ${column}`) ? { borderColor: css("--ink"), borderWidth: 2.5 } : { borderColor: css("--paper"), borderWidth: 1 },
        })), label: { show: labels, color: css("--ink"), fontSize: 11,
          formatter: (at) => `${marked.has(`${at.value[1]} ${at.value[0]}`) ? "✕ " : ""}${three(at.value[2])}` } }],
      } };
    },
    // data: rows of {name, verdict, symbol, status, gain, low, high, noise}, in percent
    intervals: (chart, width) => {
      const rows = chart.rows;
      const left = Math.min(320, width * 0.42);
      const item = (at, api) => {
        const one = rows[at.dataIndex];
        const y = api.coord([0, at.dataIndex])[1];
        const place = (value) => api.coord([value, at.dataIndex])[0];
        const line = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: css(`--${one.status}`), lineWidth: 2 } });
        const [low, gain, high] = [place(one.low), place(one.gain), place(one.high)];
        return { type: "group", children: [
          { type: "rect", shape: { x: place(-one.noise), y: y - 8, width: place(one.noise) - place(-one.noise), height: 16 }, style: { fill: css("--skipped-ground") } },
          line(low, y, high, y), line(low, y - 5, low, y + 5), line(high, y - 5, high, y + 5),
          { type: "circle", shape: { cx: gain, cy: y, r: 4.5 }, style: { fill: css(`--${one.status}`) } }] };
      };
      const ends = rows.flatMap((one) => [one.low, one.high, -one.noise, one.noise, 0]);
      return { height: 26 * rows.length + 70, option: {
        ...base(), grid: { left, right: 24, top: 8, bottom: 44 },
        tooltip: { ...base().tooltip, formatter: (at) => { const one = rows[at.dataIndex]; return `${one.name}\n${one.verdict}: ${three(one.gain)} % (${three(one.low)} to ${three(one.high)} %), noise ${three(one.noise)} %`; } },
        xAxis: axis({ type: "value", name: "gain in % (above 0: better)", nameLocation: "middle", nameGap: 28, min: Math.floor(Math.min(...ends)), max: Math.ceil(Math.max(...ends)), axisLabel: { hideOverlap: true } }),
        yAxis: axis({ type: "category", inverse: true, data: rows.map((one) => `${one.symbol} ${one.verdict}: ${one.name}`), splitLine: { show: false },
          axisLabel: { width: left - 14, overflow: "truncate", fontSize: 11, color: css("--ink") } }),
        series: [{ type: "custom", renderItem: item, data: rows.map((one, place) => [one.gain, place]), encode: { x: 0, y: 1 } }],
      } };
    },
    // data: rows of {name, spans: [{from, to, word, symbol, status}]}, times in milliseconds
    timeline: (chart, width) => {
      const left = Math.min(260, width * 0.4);
      const bars = chart.rows.flatMap((one, place) => one.spans.map((span) => ({ ...span, place, name: one.name })));
      const item = (at, api) => {
        const one = bars[at.dataIndex];
        const [x, y] = api.coord([one.from, one.place]);
        const wide = Math.max(3, api.coord([one.to, one.place])[0] - x);
        const label = { type: "text", style: { x: x + 4, y, text: short(`${one.symbol} ${one.word}`, Math.max(1, Math.floor(wide / 7))), fill: css("--ink"), fontSize: 11, textVerticalAlign: "middle" } };
        return { type: "group", children: [
          { type: "rect", shape: { x, y: y - 9, width: wide, height: 18, r: 3 }, style: { fill: css(`--${one.status}-ground`), stroke: css(`--${one.status}`), lineWidth: 1.5 } },
          ...(wide > 16 ? [label] : [])] };
      };
      const from = Math.min(...bars.map((one) => one.from)), to = Math.max(...bars.map((one) => one.to), from + 1000);
      return { height: 30 * chart.rows.length + 50, option: {
        ...base(), grid: { left, right: 24, top: 8, bottom: 30 },
        tooltip: { ...base().tooltip, formatter: (at) => { const one = bars[at.dataIndex]; return `${one.name}\n${one.symbol} ${one.word}: ${three((one.to - one.from) / 1000)} s`; } },
        xAxis: axis({ type: "time", min: from, max: to, axisLabel: { hideOverlap: true } }),
        yAxis: axis({ type: "category", inverse: true, data: chart.rows.map((one) => one.name), splitLine: { show: false },
          axisLabel: { width: left - 14, overflow: "truncate", fontSize: 11, color: css("--ink") } }),
        series: [{ type: "custom", renderItem: item, data: bars.map((one) => [one.from, one.place]), encode: { x: 0, y: 1 } }],
      } };
    },
  };

  const PAPER = 660;
  const draw = (box) => {
    const width = printing ? PAPER : Math.max(box.clientWidth, 320);
    const { height, option } = kinds[data[box.id].kind](data[box.id], width);
    charts.get(box)?.dispose();
    box.style.height = `${height}px`;
    const chart = echarts.init(box, null, { renderer: "svg", width, height });
    chart.setOption(option);
    charts.set(box, chart);
  };
  const boxes = [...document.querySelectorAll(".chart")];
  const again = () => charts.forEach((_, box) => draw(box));
  if (boxes.length) {
    const sight = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting && !charts.has(target)) draw(target);
      }
    }, { rootMargin: "300px" });
    for (const box of boxes) {
      box.style.height = "320px";
      sight.observe(box);
    }
    let before = innerWidth;
    let wait;
    addEventListener("resize", () => {
      if (innerWidth === before || printing) return;
      before = innerWidth;
      clearTimeout(wait);
      wait = setTimeout(again, 150);
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  }

  // light, dark, or as the system has it
  const WORDS = { "": "as the system", light: "light", dark: "dark" };
  const button = document.getElementById("theme");
  const set = (theme) => {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    button.textContent = `Theme: ${WORDS[theme]}`;
    again();
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    const themes = Object.keys(WORDS);
    set(themes[(themes.indexOf(root.dataset.theme ?? "") + 1) % themes.length]);
  });

  // paper is light, and has all charts
  let shown;
  addEventListener("beforeprint", () => {
    if (printing) return;
    printing = true;
    shown = root.dataset.theme ?? "";
    root.dataset.theme = "light";
    boxes.forEach(draw);
  });
  addEventListener("afterprint", () => {
    printing = false;
    set(shown);
  });
})();
