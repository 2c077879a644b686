// Shows beside the field what the chosen crontab means, in place of the row that knows it only after saving.
"use strict";
{
    const readable = JSON.parse(document.getElementById("readable-crontabs").textContent);
    const select = document.getElementById("id_crontab");
    const help = document.querySelector(".field-crontab .help");
    const row = document.querySelector(".field-crontab_translation");
    if (select && help) {
        const translation = help.appendChild(document.createElement("div"));
        const show = () => {
            translation.textContent = readable[select.value] ? `Translation: ${readable[select.value]}` : "";
        };
        select.addEventListener("change", show);
        show();
        if (row) {
            row.style.display = "none";
        }
    }
}
