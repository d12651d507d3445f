import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/wire.css";
import "./styles/views.css";
import "./styles/forms.css";
import "./styles/workbench.css";
import { render } from "preact";
import { App } from "./app";
import { connect } from "./gateway";

const root = document.getElementById("app");
if (root) {
  connect();
  render(<App />, root);
}
