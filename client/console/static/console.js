// What the pages do beyond links and forms: the theme, curves with numbers, and keys. All of it is optional.
(() => {
  "use strict";
  const root = document.documentElement, themes = ["", "light", "dark"];
  const store = { get: () => { try { return localStorage.getItem("theme") || ""; } catch { return ""; } },
                  set: (value) => { try { localStorage.setItem("theme", value); } catch { /* not kept */ } } };
  const show = (theme) => { if (theme) root.dataset.theme = theme; else delete root.dataset.theme; };
  show(store.get());

  const button = document.getElementById("theme");
  if (button) {
    const label = () => { button.textContent = `Theme: ${store.get() || "system"}`; };
    button.hidden = false;
    label();
    button.addEventListener("click", () => {
      store.set(themes[(themes.indexOf(store.get()) + 1) % themes.length]);
      show(store.get());
      label();
      draw();
    });
  }

  let drawn = [], round = 0;
  async function draw() {
    if (!window.uPlot) return;
    const mine = ++round;
    drawn.forEach((each) => each.destroy());
    drawn = [];
    const style = getComputedStyle(root), colour = (name) => style.getPropertyValue(name).trim();
    for (const box of document.querySelectorAll(".curve[data-series]")) {
      if (!box.dataset.series) continue;
      const answer = await fetch(box.dataset.series, { headers: { Accept: "application/json" } });
      if (!answer.ok) continue;
      const { times, values } = await answer.json();
      if (mine !== round) return;  // it was started again meanwhile
      if (!times.length) continue;
      box.querySelector("svg")?.remove();
      const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 } };
      drawn.push(new uPlot({ width: box.clientWidth, height: 160, legend: { show: true },
        series: [{}, { label: "value", stroke: colour("--accent"), width: 1.5, points: { show: values.filter((each) => each !== null).length < 60, size: 4 } }], axes: [axis, { ...axis, size: 60 }] },
        [times, values], box));
    }
  }
  let waiting;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(draw, 200); });
  addEventListener("DOMContentLoaded", draw);

  for (const all of document.querySelectorAll("[data-all]")) {
    all.hidden = false;
    all.addEventListener("change", () => {
      for (const box of document.getElementsByName(all.dataset.all)) box.checked = all.checked;
    });
  }

  // what is refreshed by itself: a refresh that fails is stated, and one that a login is asked for leads to it
  const ofLive = (name, then) => addEventListener(name, (event) => { if (event.target.id === "live") then(event); });
  const stale = (is) => { const note = document.getElementById("stale"); if (note) note.hidden = !is; };
  for (const name of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) ofLive(name, () => stale(true));
  ofLive("htmx:beforeSwap", (event) => {
    const { xhr } = event.detail, isLogin = new URL(xhr.responseURL).pathname === "/sign-in";
    if (isLogin) { event.detail.shouldSwap = false; location.reload(); }
    stale(xhr.status >= 400);
  });

  // a second click sends no second form
  const sent = new WeakSet();
  addEventListener("submit", (event) => {
    if (event.target.method !== "post") return;
    if (sent.has(event.target)) event.preventDefault();
    sent.add(event.target);
  });
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

  // "/" goes to the search, as on other consoles
  addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const field = document.querySelector("[role=search] input");
    if (field) { event.preventDefault(); field.focus(); }
  });
})();
