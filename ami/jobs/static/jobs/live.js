// Replaces the part of the page with `data-poll` by what its address answers, every `data-every` seconds, while the page is seen.
"use strict";

(() => {
  let etag = "";

  async function look() {
    const part = document.querySelector("[data-poll]");
    if (!part) return;
    const again = () => setTimeout(look, 1000 * Number(part.dataset.every));
    if (document.hidden) {
      document.addEventListener("visibilitychange", look, { once: true });
      return;
    }
    try {
      const answer = await fetch(part.dataset.poll, { headers: etag ? { "If-None-Match": etag } : {}, redirect: "error" });
      if (answer.status === 200) {
        etag = answer.headers.get("ETag") || "";
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-poll]");
        if (fresh) part.replaceWith(fresh);
      } else if (answer.status !== 304 && answer.status < 500) {
        return;  // Signed out, or the job is deleted.
      }
    } catch {
      // The server restarts; the next look tries again.
    }
    again();
  }

  document.addEventListener("DOMContentLoaded", () => setTimeout(look, 2500));
})();
