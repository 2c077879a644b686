// Polls the parts of a page while it is visible, shows times in the reader's zone, and keeps ages counting.
"use strict";
(() => {
  const POLL_MS = 2000;
  const UNANSWERED_MS = 15000;
  // Of a time further away the year is said, too.
  const NEAR_MS = 200 * 86400000;
  const day = new Intl.DateTimeFormat(undefined, {month: "short", day: "numeric", hour: "numeric", minute: "2-digit"});
  const full = new Intl.DateTimeFormat(undefined, {dateStyle: "medium", timeStyle: "medium"});
  const short = new Intl.DateTimeFormat(undefined, {timeStyle: "short"});
  let answered = Date.now();
  // What the server's clock is ahead of this one, in milliseconds.
  let ahead = 0;

  const duration = (seconds) => {
    if (seconds < 1) return "0 s";
    if (seconds < 60) return `${Math.floor(seconds)} s`;
    const minutes = Math.floor(seconds / 60);
    if (minutes < 60) return `${minutes} min`;
    const two = (major, unit, minor, part) => (minor ? `${major} ${unit} ${minor} ${part}` : `${major} ${unit}`);
    const hours = Math.floor(minutes / 60);
    return hours < 48 ? two(hours, "h", minutes % 60, "min") : two(Math.floor(hours / 24), "d", hours % 24, "h");
  };

  const localise = (root) => {
    for (const time of root.querySelectorAll("time[datetime]:not(.ago):not([data-local])")) {
      const at = new Date(time.dateTime);
      if (isNaN(at)) continue;
      const isToday = at.toDateString() === new Date().toDateString();
      time.dataset.local = "";
      time.title = time.textContent;
      const isNear = Math.abs(Date.now() - at) < NEAR_MS;
      time.textContent = time.dataset.form === "full" || !isNear ? full.format(at) : (isToday ? short : day).format(at);
    }
  };

  const count = () => {
    const now = (Date.now() + ahead) / 1000;
    for (const time of document.querySelectorAll("time.ago")) {
      const text = duration(Math.max(0, now - Number(time.dataset.at)));
      if (time.textContent !== text) time.textContent = text;
      if (!time.title) time.title = full.format(new Date(time.dateTime));
    }
    const silent = !document.hidden && document.querySelector("[data-poll]") && Date.now() - answered > UNANSWERED_MS;
    const line = document.getElementById("connection");
    const text = silent ? "No answer from the server; these figures are old." : "";
    if (line && line.textContent !== text) line.textContent = text;
  };

  const isSelecting = (part) => {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  };

  const poll = () => {
    if (document.hidden) return;
    for (const part of document.querySelectorAll("[data-poll]")) {
      if (!isSelecting(part)) htmx.trigger(part, "poll");
    }
  };

  const clock = () => {
    const part = document.querySelector("[data-now]");
    const took = performance.timing ? Date.now() - performance.timing.responseStart : 0;
    if (part) ahead = Number(part.dataset.now) * 1000 + took - Date.now();
  };

  document.addEventListener("htmx:configRequest", (event) => {
    const etag = event.target.dataset.etag;
    if (etag) event.detail.headers["If-None-Match"] = etag;
  });
  document.addEventListener("htmx:beforeOnLoad", (event) => {
    answered = Date.now();
    const {xhr, elt} = event.detail;
    const etag = xhr.getResponseHeader("ETag");
    if (xhr.status === 200 && etag) elt.dataset.etag = etag;
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    localise(event.detail.elt);
    count();
  });
  document.addEventListener("visibilitychange", () => {
    answered = Date.now();
    poll();
  });
  document.addEventListener("DOMContentLoaded", () => {
    clock();
    localise(document);
    count();
    setInterval(poll, POLL_MS);
    setInterval(count, 1000);
  });
})();
