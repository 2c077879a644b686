// Draws the schema with Swagger UI, light or dark as the system is. Only what reads can be tried out here.
"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const shade = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
  dark.addEventListener("change", shade);
  shade();
  const place = document.getElementById("docs");
  SwaggerUIBundle({
    url: place.dataset.schema,
    domNode: place,
    presets: [SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
    deepLinking: true,
    docExpansion: "none",
    defaultModelsExpandDepth: 0,
    filter: true,
    supportedSubmitMethods: ["get"],
    validatorUrl: null,
    queryConfigEnabled: false,
    syntaxHighlight: {activated: false},
  });
})();
