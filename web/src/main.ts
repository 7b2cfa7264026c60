import { mount } from "svelte";
import App from "./App.svelte";
import { rememberPageSource } from "./files/download";
import "./drawing/theme.css";

// In the built page the script's own element (finish.ts) has done its work.
document.currentScript?.remove();
// Before anything is drawn, the document is still the file itself: what "save this page" writes.
rememberPageSource();
const target = document.getElementById("app");
if (target) mount(App, { target });
