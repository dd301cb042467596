// Choosing, pointing and finding. The page is complete without it; texts from the data may come from
// anyone and are only ever written as text.
(() => {
  "use strict";
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const between = (value, low, high) => Math.min(Math.max(value, low), high);
  root.classList.add("live");

  // --- descriptions of what is pointed at ------------------------------------------------------

  const describe = (part, text, event) => {
    const readout = part.closest("figure, article").querySelector(".readout");
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
  const pointing = (part, area, point, leave) => {
    const pointed = (event) => {
      const box = area.getBoundingClientRect();
      point((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height, event);
    };
    area.addEventListener("pointermove", pointed);
    area.addEventListener("pointerdown", pointed);
    area.addEventListener("pointerleave", () => { hideTip(); leave(); });
  };

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
  for (const [id, { x, y, text }] of Object.entries(data.charts)) {
    const part = document.getElementById(id);
    const area = part.querySelector(".area");
    const cursor = document.createElement("i");
    cursor.className = "cursor";
    cursor.hidden = true;
    area.append(cursor);
    part.tabIndex = 0;
    part.setAttribute("role", "group");
    part.setAttribute("aria-roledescription", "chart, arrow keys move along it");
    let at = -1;
    const move = (to, event) => {
      at = between(to, 0, x.length - 1);
      cursor.hidden = false;
      cursor.style.setProperty("--x", `${100 * x[at]}%`);
      cursor.style.setProperty("--y", `${100 * y[at]}%`);
      describe(part, text[at], event);
    };
    pointing(part, area, (across, down, event) => move(nearest(x, across), event), () => { cursor.hidden = true; });
    part.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowLeft: -1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity };
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in steps)) return;
      move(at < 0 && steps[event.key] === 1 ? 0 : at + steps[event.key]);
      event.preventDefault();
    });
  }

  // --- components ----------------------------------------------------------------------------

  const articles = all(".component");
  const tabs = all("#chooser button");
  const choose = (k, focus) => {
    articles.forEach((article, n) => article.classList.toggle("unchosen", n !== k));
    tabs.forEach((button, n) => {
      button.setAttribute("aria-selected", String(n === k));
      button.tabIndex = n === k ? 0 : -1;
      if (focus && n === k) button.focus();
    });
  };
  tabs.forEach((button, k) => {
    button.addEventListener("click", () => choose(k));
    button.addEventListener("keydown", (event) => {
      const last = tabs.length - 1;
      const [next, before] = [k === last ? 0 : k + 1, k === 0 ? last : k - 1];
      const keys = { ArrowRight: next, ArrowDown: next, ArrowLeft: before, ArrowUp: before, Home: 0, End: last };
      if (!(event.key in keys)) return;
      event.preventDefault();
      choose(keys[event.key], true);
    });
  });
  if (tabs.length) choose(0);
  for (const link of tabs.length ? all("#overview a") : []) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      choose(Number(link.dataset.k));
      articles[Number(link.dataset.k)].scrollIntoView({ block: "nearest" });
    });
  }

  // --- samples -------------------------------------------------------------------------------

  const map = document.getElementById("map");
  const { places, labels, names, errors, shares, classes, word, first } = data.samples;
  const svg = map.querySelector("svg");
  const ring = svg.querySelector(".ring");
  const sampleText = (n) => {
    const parts = shares[n].map(([k, share]) => `${k + first}: ${share}%`).join(", ");
    const whose = labels[n] < 0 ? `no ${word}` : `mostly ${word} ${labels[n] + first}`;
    const known = classes ? `class ${classes[n]}\n` : "";
    return `${names[n]}\n${known}${whose}${parts ? ` (${parts})` : ""}\nrelative error ${errors[n]}`;
  };
  const circle = (n) => {
    ring.setAttribute("visibility", n === null ? "hidden" : "visible");
    if (n === null) return;
    ring.setAttribute("cx", places[n][0]);
    ring.setAttribute("cy", places[n][1]);
  };
  pointing(map, map, (across, down, event) => {
    const half = svg.viewBox.baseVal.width / 2;
    const [x, y] = [(2 * across - 1) * half, (2 * down - 1) * half];
    let best = null;
    let least = 0.06 ** 2;
    places.forEach(([a, b], n) => {
      const distance = (a - x) ** 2 + (b - y) ** 2;
      if (distance < least) [best, least] = [n, distance];
    });
    circle(best);
    if (best === null) hideTip();
    else describe(map, sampleText(best), event);
  }, () => {});
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
    const more = matches.length > 1 ? `\n${matches.length} matches, Enter for the next` : "";
    describe(map, current >= 0 ? sampleText(current) + more : text ? "no sample here has this name" : "\u00a0");
  };
  find.addEventListener("input", () => { current = -1; search(); });
  find.addEventListener("keydown", (event) => { if (event.key === "Enter") search(); });

  // --- copying -------------------------------------------------------------------------------

  for (const button of all(".copy")) {
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
      button.textContent = "Copied";
    });
  }
})();
