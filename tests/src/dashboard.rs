//! The queries of a Grafana dashboard, as Grafana would send them.

use serde_json::Value;

#[derive(Clone, Debug)]
pub struct Query {
    /// The title of the panel.
    pub of: String,
    pub expression: String,
}

/// Returns the name and content of every JSON file in `dashboards/grafana/`.
pub fn all() -> Vec<(String, Value)> {
    let directory = crate::root().join("dashboards/grafana");
    let entries =
        std::fs::read_dir(&directory).expect("dashboards/grafana/").flatten().map(|entry| entry.path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
    files.sort();
    let read = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).expect("a dashboard is readable");
        let json = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        (path.display().to_string(), json)
    };
    files.iter().map(read).collect()
}

pub fn items(owner: &Value) -> impl Iterator<Item = &Value> {
    owner.as_array().into_iter().flatten()
}

/// Returns all panels, including panels nested in rows.
pub fn panels(dashboard: &Value) -> Vec<&Value> {
    items(&dashboard["panels"])
        .flat_map(|panel| std::iter::once(panel).chain(items(&panel["panels"])))
        .collect()
}

pub fn queries(dashboard: &Value) -> Vec<Query> {
    let panels = panels(dashboard);
    let targets = panels.iter().flat_map(|panel| items(&panel["targets"]).map(|target| (*panel, target)));
    targets
        .map(|(panel, target)| Query {
            of: panel["title"].as_str().unwrap_or_default().to_owned(),
            expression: target["expr"].as_str().expect("a target has an expression").to_owned(),
        })
        .collect()
}

/// Returns the variables that are `label_values(selector, label)`: name, selector, label.
pub fn variables(dashboard: &Value) -> Vec<(String, String, String)> {
    let list = items(&dashboard["templating"]["list"]).filter(|variable| variable["type"] == "query");
    list.map(|variable| {
        let query = variable["query"]["query"].as_str().unwrap_or_default();
        let inside = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let (selector, label) = inside.and_then(|inside| inside.rsplit_once(", ")).unwrap_or(("", ""));
        (variable["name"].as_str().unwrap_or_default().to_owned(), selector.to_owned(), label.to_owned())
    })
    .collect()
}

/// Returns the expression with the values that Grafana substitutes for its variables when everything is selected.
pub fn substituted(expression: &str) -> String {
    let intervals = ["$__rate_interval", "$__interval", "$__range"];
    let text = intervals.iter().fold(expression.to_owned(), |text, name| text.replace(name, "5s"));
    ["$instance", "$run", "$node", "$device", "$rank", "$within"]
        .iter()
        .fold(text, |text, name| text.replace(name, ".*"))
}
