import { defineConfig } from "vite";

// The built files are part of the Python package, so that `make serve` and `pip install toolwire` need no Node.
// Their names have no hashes: they are committed, and the gateway sends an ETag.
export default defineConfig({
  base: "/console/",
  build: {
    outDir: "../src/toolwire/gateway/surfaces/console/page",
    emptyOutDir: true,
    assetsInlineLimit: 0, // the Content-Security-Policy allows no data: URLs in scripts and styles
    modulePreload: false,
    target: "es2022",
    cssTarget: ["chrome125", "firefox128", "safari17.5"], // they know light-dark(), so it needs no replacement
    rollupOptions: {
      output: {
        entryFileNames: "[name].js",
        chunkFileNames: "[name].js",
        assetFileNames: "[name][extname]",
      },
    },
  },
  server: {
    // `npm run dev` beside a gateway on its usual port.
    proxy: { "/console/api": "http://127.0.0.1:8642", "/v1": "http://127.0.0.1:8642", "/v1beta": "http://127.0.0.1:8642" },
  },
});
