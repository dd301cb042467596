// Pointing, choosing and zooming. The page is complete without it; texts from the data are
// untrusted and only ever written as text.
(() => {
  "use strict";
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const make = (tag, className, text) => {
    const part = document.createElement(tag);
    if (className) part.className = className;
    if (text !== undefined) part.textContent = text;
    return part;
  };
  const between = (value, low, high) => Math.min(Math.max(value, low), high);
  root.classList.add("live");

  // --- descriptions of what is pointed at ------------------------------------------------------

  const readoutOf = (part) => part.closest("figure, article").querySelector(".readout");
  const counted = (count, thing) => `${count} ${thing}${count === 1 ? "" : "s"}`;
  const describe = (part, text, event) => {
    const readout = readoutOf(part);
    if (readout) readout.textContent = text;
    tip.hidden = !event;
    if (!event) return;
    tip.textContent = text;
    const x = between(event.clientX + 14, 8, innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 18;
    const fits = below + tip.offsetHeight < innerHeight;
    tip.style.transform = `translate(${x}px, ${fits ? below : event.clientY - tip.offsetHeight - 12}px)`;
  };
  const hideTip = () => { tip.hidden = true; };
  addEventListener("scroll", hideTip, { passive: true });
  addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });

  // A part of the page that answers to the pointer and to keys.
  const interactive = (part, hint, { point, key, leave }) => {
    part.tabIndex = 0;
    part.setAttribute("role", "group");
    part.setAttribute("aria-roledescription", hint);
    const area = part.querySelector(".area") || part;
    const pointed = (event) => {
      const box = area.getBoundingClientRect();
      point((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height, event);
    };
    area.addEventListener("pointermove", pointed);
    area.addEventListener("pointerdown", pointed);
    area.addEventListener("pointerleave", () => { hideTip(); leave?.(); });
    part.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (key(event.key)) event.preventDefault();
    });
  };

  // --- light and dark ------------------------------------------------------------------------

  const theme = document.getElementById("theme");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);
  const showTheme = () => {
    theme.textContent = isDark() ? "Light" : "Dark";
    theme.setAttribute("aria-label", `Use ${isDark() ? "light" : "dark"} colours`);
  };
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    showTheme();
  });
  prefersDark.addEventListener("change", showTheme);
  showTheme();

  // --- one of several drawings ---------------------------------------------------------------

  const switches = all("[data-shows]");
  const show = (chosen) => {
    for (const button of switches) {
      button.setAttribute("aria-pressed", String(button === chosen));
      const figure = document.getElementById(button.dataset.shows).closest("figure");
      figure.classList.toggle("unchosen", button !== chosen);
    }
  };
  for (const button of switches) button.addEventListener("click", () => show(button));
  if (switches.length) show(switches[0]);

  // --- charts --------------------------------------------------------------------------------

  const nearest = (places, x) => {
    let low = 0;
    let high = places.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (places[middle] < x) low = middle;
      else high = middle;
    }
    return Math.abs(places[low] - x) <= Math.abs(places[high] - x) ? low : high;
  };
  const chart = (part, { x, y, text }) => {
    const cursor = make("i", "cursor");
    cursor.hidden = true;
    part.querySelector(".area").append(cursor);
    let at = -1;
    const move = (to, event) => {
      at = between(to, 0, x.length - 1);
      cursor.hidden = false;
      cursor.style.setProperty("--x", `${100 * x[at]}%`);
      cursor.style.setProperty("--y", `${100 * y(at)}%`);
      describe(part, text(at), event);
    };
    interactive(part, "chart, arrow keys move along it", {
      point: (across, down, event) => move(nearest(x, across), event),
      leave: () => { cursor.hidden = true; },
      key: (name) => {
        const steps = { ArrowRight: 1, ArrowLeft: -1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity };
        if (!(name in steps)) return false;
        move(at < 0 && steps[name] === 1 ? 0 : at + steps[name]);
        return true;
      },
    });
  };
  for (const [id, points] of Object.entries(data.charts)) {
    const part = document.getElementById(id);
    chart(part, { x: points.x, y: (n) => points.y[n], text: (n) => points.text[n] });
  }
  if (data.curves) {
    const { x, names, tops, values } = data.curves;
    values.forEach((curve, k) => {
      const part = document.getElementById(`curve-${k}`);
      part.closest(".picture").append(make("output", "readout controls", "\u00a0"));
      chart(part, { x, y: (n) => curve[n] / tops[k], text: (n) => `${names[n]}: ${curve[n]}` });
    });
  }

  // --- angles between cones ------------------------------------------------------------------

  if (data.angles) {
    const { between: angles, sizes, required, samples } = data.angles;
    const part = document.getElementById("angles");
    const area = part.querySelector(".area");
    const K = sizes.length;
    const cell = make("i", "cell");
    cell.hidden = true;
    cell.style.setProperty("--w", `${100 / K}%`);
    area.append(cell);
    const sizeDots = () => part.style.setProperty("--dot", `${between(area.clientWidth / K / 5, 1, 6)}px`);
    addEventListener("resize", sizeDots, { passive: true });
    sizeDots();
    let row = 0;
    let column = -1;
    const move = (toRow, toColumn, event) => {
      row = between(toRow, 0, K - 1);
      column = between(toColumn, 0, K - 1);
      cell.hidden = false;
      cell.style.setProperty("--x", `${(100 * column) / K}%`);
      cell.style.setProperty("--y", `${(100 * row) / K}%`);
      const angle = angles[row][column];
      describe(
        part,
        row === column
          ? `cone ${row}: ${counted(samples[row], "sample")}\nwithin ${sizes[row]}\u00b0 of its axis`
          : `cones ${row} and ${column}: ${angle}\u00b0 apart\n` +
              `${angle > required ? "more" : "less"} than the ${required}\u00b0 that the guarantee needs`,
        event,
      );
    };
    interactive(part, "table of angles, arrow keys move in it", {
      point: (across, down, event) => move(Math.floor(down * K), Math.floor(across * K), event),
      leave: () => { cell.hidden = true; },
      key: (name) => {
        const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
        if (!(name in steps)) return false;
        move(row + (column < 0 ? 0 : steps[name][0]), column + (column < 0 ? 1 : steps[name][1]));
        return true;
      },
    });
  }

  // --- components ----------------------------------------------------------------------------

  const articles = all(".component");
  const chooser = document.getElementById("chooser");
  const thumbnail = (article) => {
    const image = article.querySelector(".picture img");
    if (image) {
      const small = image.cloneNode();
      small.alt = "";
      return small;
    }
    const drawing = article.querySelector(".picture svg");
    if (drawing) {
      const small = drawing.cloneNode(true);
      for (const line of all(".grid", small)) line.remove();
      small.classList.add("small");
      small.style.cssText = article.style.cssText;
      return small;
    }
    const words = all(".picture .of", article).slice(0, 2).map((word) => word.textContent);
    return make("span", "words", words.join(", "));
  };
  const choose = (k, focus) => {
    articles.forEach((article, n) => article.classList.toggle("unchosen", n !== k));
    all("button", chooser).forEach((button, n) => {
      button.setAttribute("aria-selected", String(n === k));
      button.tabIndex = n === k ? 0 : -1;
      if (focus && n === k) button.focus();
    });
  };
  if (articles.length > 1) {
    chooser.setAttribute("role", "tablist");
    chooser.setAttribute("aria-label", "Choose a component");
    articles.forEach((article, k) => {
      const button = make("button");
      button.type = "button";
      button.id = `choose-${k}`;
      button.setAttribute("role", "tab");
      button.setAttribute("aria-controls", article.id);
      button.setAttribute("aria-label", `Component ${k}`);
      const number = make("span", "number");
      number.append(article.querySelector(".glyph").cloneNode(true), String(k));
      if (chooser.classList.contains("bare")) button.append(number);
      else button.append(thumbnail(article), number);
      button.addEventListener("click", () => choose(k));
      chooser.append(button);
      article.setAttribute("role", "tabpanel");
      article.setAttribute("aria-labelledby", button.id);
    });
    chooser.addEventListener("keydown", (event) => {
      const now = all("button", chooser).findIndex((button) => button.tabIndex === 0);
      const last = articles.length - 1;
      const to = {
        ArrowRight: now === last ? 0 : now + 1,
        ArrowDown: now === last ? 0 : now + 1,
        ArrowLeft: now === 0 ? last : now - 1,
        ArrowUp: now === 0 ? last : now - 1,
        Home: 0,
        End: last,
      }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      choose(to, true);
    });
    choose(0);
    for (const link of all("#overview a")) {
      link.addEventListener("click", (event) => {
        event.preventDefault();
        choose(Number(link.dataset.k));
        articles[Number(link.dataset.k)].scrollIntoView({ block: "nearest" });
      });
    }
  }
  chooser.classList.toggle("many", articles.length > 60);

  // --- factors as files ------------------------------------------------------------------------

  const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
  const table = ({ title, names, columns, scale, numbers }) => {
    const bytes = Uint8Array.from(atob(numbers), (sign) => sign.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    const titles = [title];
    for (let k = 0; k < columns; k += 1) titles.push(`component ${k}`);
    const lines = [titles.map(quoted).join(",")];
    for (let row = 0; row < bytes.length / 4 / columns; row += 1) {
      const cells = [names ? quoted(names[row]) : String(row)];
      for (let k = 0; k < columns; k += 1) {
        const value = view.getFloat32(4 * (row * columns + k), true) * scale;
        cells.push(String(Number(value.toPrecision(8))));
      }
      lines.push(cells.join(","));
    }
    return `${lines.join("\n")}\n`;
  };
  for (const button of all("[data-download]")) {
    button.addEventListener("click", () => {
      const name = button.dataset.download;
      const file = new Blob([table(data.factors[name])], { type: "text/csv" });
      const link = make("a");
      link.href = URL.createObjectURL(file);
      link.download = `${name}.csv`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
  }

  // --- samples -------------------------------------------------------------------------------

  const map = document.getElementById("map");
  const { halfSide, anchors, places, labels, names, errors, shares, classes } = data.samples;
  const svg = map.querySelector("svg");
  const ring = svg.querySelector(".ring");
  const numbers = all(".anchor", map);
  const MAX_ZOOM = 16;
  let zoom = 1;
  let middle = [0, 0];
  const draw = () => {
    const half = halfSide / zoom;
    const far = halfSide - half;
    middle = middle.map((place) => between(place, -far, far));
    svg.setAttribute("viewBox", `${middle[0] - half} ${middle[1] - half} ${2 * half} ${2 * half}`);
    numbers.forEach((number, k) => {
      anchors[k].forEach((place, side) => {
        const at = 50 + (50 * (place - middle[side])) / half;
        number.style.setProperty(side ? "--y" : "--x", `${at}%`);
      });
    });
    map.classList.toggle("zoomed", zoom > 1);
    hideTip();
  };
  const zoomTo = (to, around = middle) => {
    const next = between(to, 1, MAX_ZOOM);
    if (next === zoom) return false;
    middle = middle.map((place, side) => around[side] + ((place - around[side]) * zoom) / next);
    zoom = next;
    draw();
    return true;
  };
  const sampleText = (n) => {
    const label = labels[n];
    const parts = shares[n].map(([k, share]) => `${k}: ${share}%`).join(", ");
    const whose = label < 0 ? "no component" : `mostly component ${label}`;
    const known = classes ? `class ${classes[n]}\n` : "";
    return `${names[n]}\n${known}${whose}${parts ? ` (${parts})` : ""}\nrelative error ${errors[n]}`;
  };
  const circle = (n) => {
    ring.setAttribute("visibility", n === null ? "hidden" : "visible");
    if (n === null) return;
    ring.setAttribute("cx", places[n][0]);
    ring.setAttribute("cy", places[n][1]);
  };
  const placeOf = (across, down) => {
    const half = halfSide / zoom;
    return [middle[0] + (2 * across - 1) * half, middle[1] + (2 * down - 1) * half];
  };
  const sampleAt = ([x, y]) => {
    let best = null;
    let least = (0.06 / Math.sqrt(zoom)) ** 2;
    places.forEach(([a, b], n) => {
      const distance = (a - x) ** 2 + (b - y) ** 2;
      if (distance < least) [best, least] = [n, distance];
    });
    return best;
  };
  let held = null;
  interactive(map, "map, arrow keys move it, plus and minus zoom", {
    point: (across, down, event) => {
      if (event.type === "pointerdown" && zoom > 1) {
        held = [event.clientX, event.clientY];
        map.setPointerCapture(event.pointerId);
      }
      if (held && event.buttons) {
        const scale = (2 * halfSide) / zoom / map.clientWidth;
        middle = [middle[0] - (event.clientX - held[0]) * scale, middle[1] - (event.clientY - held[1]) * scale];
        held = [event.clientX, event.clientY];
        draw();
        return;
      }
      const n = sampleAt(placeOf(across, down));
      circle(n);
      if (n === null) hideTip();
      else describe(map, sampleText(n), event);
    },
    key: (name) => {
      const step = (0.25 * halfSide) / zoom;
      const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
      if (name in moves && zoom > 1) {
        middle = [middle[0] + moves[name][0], middle[1] + moves[name][1]];
        draw();
      } else if (name === "+" || name === "=") zoomTo(zoom * 1.5);
      else if (name === "-") zoomTo(zoom / 1.5);
      else if (name === "0") zoomTo(1);
      else return false;
      return true;
    },
  });
  for (const end of ["pointerup", "pointercancel"]) map.addEventListener(end, () => { held = null; });
  // The wheel scrolls the page until the map is chosen, so that scrolling past it works.
  map.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && document.activeElement !== map) return;
    const box = map.getBoundingClientRect();
    const around = placeOf((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    if (zoomTo(zoom * Math.exp(-between(event.deltaY, -100, 100) / 300), around)) event.preventDefault();
  }, { passive: false });
  for (const button of all("[data-zoom]")) {
    button.addEventListener("click", () => {
      zoomTo({ in: zoom * 1.5, out: zoom / 1.5, reset: 1 }[button.dataset.zoom]);
    });
  }
  const marks = all(".marks button");
  const highlight = (button) => {
    for (const other of marks) other.setAttribute("aria-pressed", String(other === button));
    const by = button && button.closest("[data-by]").dataset.by;
    for (const group of all(".samples", svg)) {
      const isOther = button && group.dataset.k !== button.dataset.k;
      group.classList.toggle("dim", Boolean(isOther && group.closest("[data-by]").dataset.by === by));
    }
  };
  for (const button of marks) {
    button.addEventListener("click", () => {
      highlight(button.getAttribute("aria-pressed") === "true" ? null : button);
    });
  }
  const colours = all("[data-colours]");
  const colourBy = (kind) => {
    for (const button of colours) button.setAttribute("aria-pressed", String(button.dataset.colours === kind));
    for (const part of all("#samples [data-by]")) part.classList.toggle("hidden", part.dataset.by !== kind);
    highlight(null);
  };
  for (const button of colours) button.addEventListener("click", () => colourBy(button.dataset.colours));
  if (colours.length) colourBy("class");
  const find = document.getElementById("find");
  let current = -1;
  const search = () => {
    const text = find.value.trim().toLowerCase();
    const matches = text ? names.map((name, n) => n).filter((n) => names[n].toLowerCase().includes(text)) : [];
    current = matches.find((n) => n > current) ?? matches[0] ?? -1;
    circle(current < 0 ? null : current);
    if (current >= 0 && zoom > 1) {
      middle = [...places[current]];
      draw();
    }
    const more = matches.length > 1 ? `\n${matches.length} matches, Enter for the next` : "";
    describe(map, current >= 0 ? sampleText(current) + more : text ? "no sample here has this name" : "\u00a0");
  };
  find.addEventListener("input", () => { current = -1; search(); });
  find.addEventListener("keydown", (event) => { if (event.key === "Enter") search(); });

  // --- copying -------------------------------------------------------------------------------

  for (const button of all(".copy")) {
    button.addEventListener("click", async () => {
      const code = button.parentElement.querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
      } catch {
        getSelection().selectAllChildren(code);
        document.execCommand("copy");
      }
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
})();
