import { mount } from "svelte";
import App from "./App.svelte";
import { rememberPageSource } from "./files/download";
import ReportView from "./report/ReportView.svelte";
import { loadContents } from "./selection/page.svelte";
import { TABS } from "./tabs";
import "./drawing/theme.css";

// In the built page, packPage.ts adds a script element that is no longer needed.
document.currentScript?.remove();
// Store the source of the page before rendering, for saving.
rememberPageSource();
const target = document.getElementById("app");
if (target) mount(App, { target, props: { tabs: TABS, loadContents, ReportView } });
