/** Page that decodes with models of its own file. */
import { mount } from "svelte";
import App from "../App.svelte";
import { useLocalModel } from "../data/api";
import "../drawing/theme.css";
import { createKernel } from "../model/kernel";
import { loadModelPage } from "./contents";
import ModelInput from "./ModelInput.svelte";
import { MODEL_TABS } from "./modelTabs";

// In the built page, packPage.ts adds a script element that is no longer needed.
document.currentScript?.remove();
const target = document.getElementById("app");
const loadContents = async () => {
  const { contents, models } = await loadModelPage(document.getElementById("model")?.textContent ?? "", await createKernel());
  useLocalModel(models);
  return contents;
};
if (target) mount(App, { target, props: { tabs: MODEL_TABS, loadContents, Top: ModelInput } });
