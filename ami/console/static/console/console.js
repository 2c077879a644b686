// Polls the parts of a page while it is visible, shows times in the reader's zone, and keeps ages counting.
"use strict";
(() => {
  const POLL_SECONDS = 5;
  const UNANSWERED_MS = 15000;
  const two = "2-digit";
  const parts = new Intl.DateTimeFormat("en-GB", {
    year: "numeric", month: two, day: two, hour: two, minute: two, second: two, hourCycle: "h23", timeZoneName: "short",
  });
  // As ami/celery/shown_time.py, in the reader's zone: 2026-11-28 12:03:04 UTC.
  window.shownTime = (at) => {
    const of = Object.fromEntries(parts.formatToParts(at).map(({type, value}) => [type, value]));
    return `${of.year}-${of.month}-${of.day} ${of.hour}:${of.minute}:${of.second} ${of.timeZoneName}`;
  };
  let answered = Date.now();
  // What the server's clock is ahead of this one, in milliseconds.
  let ahead = 0;

  const duration = (seconds) => {
    if (seconds < 1) return "0 s";
    if (seconds < 60) return `${Math.floor(seconds)} s`;
    const minutes = Math.floor(seconds / 60);
    if (minutes < 60) return `${minutes} min`;
    const pair = (major, unit, minor, part) => (minor ? `${major} ${unit} ${minor} ${part}` : `${major} ${unit}`);
    const hours = Math.floor(minutes / 60);
    return hours < 48 ? pair(hours, "h", minutes % 60, "min") : pair(Math.floor(hours / 24), "d", hours % 24, "h");
  };

  const localise = (root) => {
    for (const time of root.querySelectorAll("time[datetime]:not(.ago):not([data-local])")) {
      const at = new Date(time.dateTime);
      if (isNaN(at)) continue;
      time.dataset.local = "";
      time.title = time.textContent;
      time.textContent = shownTime(at);
    }
  };

  const count = () => {
    const now = (Date.now() + ahead) / 1000;
    for (const time of document.querySelectorAll("time.ago")) {
      const text = duration(Math.max(0, now - Number(time.dataset.at)));
      if (time.textContent !== text) time.textContent = text;
      if (!time.title) time.title = shownTime(new Date(time.dateTime));
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

  // The server says of each part how soon to ask again.
  const again = () => {
    const waits = [...document.querySelectorAll("[data-poll]")].map((part) => Number(part.dataset.every) || POLL_SECONDS);
    setTimeout(() => {
      poll();
      again();
    }, 1000 * Math.min(POLL_SECONDS, ...waits));
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
    if (xhr.status !== 200 || !etag) return;
    elt.dataset.etag = etag;
    elt.dataset.every = xhr.getResponseHeader("Poll-Seconds") || POLL_SECONDS;
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
    again();
    setInterval(count, 1000);
  });
})();
