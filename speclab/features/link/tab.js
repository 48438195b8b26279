import { runOfLink } from "./format.js";
export const X = runOfLink;
