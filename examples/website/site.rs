//! From a Website to what it needs.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use metashard_examples::{SyncRequest, SyncResponse};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What the author of a Website writes.
#[derive(Debug, Deserialize)]
pub(crate) struct Spec {
    /// Shown at the head of each page.
    title: String,
    /// Number of web servers.
    #[serde(default = "one")]
    replicas: u32,
    /// The pages, the first of which is the home page.
    pages: Vec<Page>,
}

#[derive(Debug, Deserialize)]
struct Page {
    /// Last part of the page's address.
    name: String,
    /// Paragraphs, separated by empty lines.
    text: String,
}

/// What the Website says about itself.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Status {
    pages: usize,
    servers: String,
}

fn one() -> u32 {
    1
}

/// The sync hook.
pub(crate) fn sync(request: &SyncRequest<Spec>) -> SyncResponse<Status> {
    let name = &request.parent.metadata.name;
    let spec = &request.parent.spec;
    let files = files(spec);
    let ready = request
        .child("Deployment.apps/v1", name)
        .and_then(|it| it["status"]["readyReplicas"].as_u64())
        .unwrap_or(0);
    SyncResponse {
        status: Status {
            pages: spec.pages.len(),
            servers: format!("{ready} of {} ready", spec.replicas),
        },
        children: vec![config_map(name, &files), deployment(name, spec, &files)],
    }
}

fn config_map(name: &str, files: &BTreeMap<String, String>) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": pages_of(name), "labels": labels(name) },
        "data": files,
    })
}

fn deployment(name: &str, spec: &Spec, files: &BTreeMap<String, String>) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name, "labels": labels(name) },
        "spec": {
            "replicas": spec.replicas,
            "selector": { "matchLabels": labels(name) },
            "template": {
                "metadata": {
                    "labels": labels(name),
                    // Servers read their pages once; new pages need new servers.
                    "annotations": { "examples.metashard.io/pages": digest(files) },
                },
                "spec": {
                    "containers": [{
                        "name": "web",
                        "image": "nginx:1.29-alpine",
                        "ports": [{ "containerPort": 80, "protocol": "TCP" }],
                        "volumeMounts": [{ "name": "pages", "mountPath": "/usr/share/nginx/html" }],
                    }],
                    "volumes": [{ "name": "pages", "configMap": { "name": pages_of(name) } }],
                },
            },
        },
    })
}

fn pages_of(name: &str) -> String {
    format!("{name}-pages")
}

fn labels(name: &str) -> Value {
    json!({ "examples.metashard.io/website": name })
}

/// The site's files: one a page, each with links to all, and the home page once more as the index.
fn files(spec: &Spec) -> BTreeMap<String, String> {
    let links: Vec<String> = spec
        .pages
        .iter()
        .map(|page| format!("<a href=\"{0}.html\">{0}</a>", escape(&page.name)))
        .collect();
    let head = format!(
        "<!doctype html>\n<title>{0}</title>\n<h1>{0}</h1>\n<nav>{1}</nav>\n",
        escape(&spec.title),
        links.join(" ")
    );
    let html = |page: &Page| format!("{head}{}", paragraphs(&page.text));
    let mut files: BTreeMap<String, String> = spec
        .pages
        .iter()
        .map(|page| (format!("{}.html", page.name), html(page)))
        .collect();
    if let Some(home) = spec.pages.first() {
        files.insert("index.html".to_owned(), html(home));
    }
    files
}

fn paragraphs(text: &str) -> String {
    let paragraphs: Vec<String> = text
        .split("\n\n")
        .map(|it| format!("<p>{}</p>\n", escape(it.trim())))
        .collect();
    paragraphs.concat()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}

/// A short text that changes with the files. The same files give the same text on every run: an answer that
/// differed from call to call would be written again and again.
fn digest(files: &BTreeMap<String, String>) -> String {
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(spec: &Value, children: &Value) -> SyncResponse<Status> {
        let request = json!({
            "controller": { "metadata": { "name": "websites" }, "spec": {} },
            "parent": { "metadata": { "name": "shop" }, "spec": spec },
            "children": children,
        });
        sync(&serde_json::from_value(request).unwrap())
    }

    #[test]
    fn each_page_becomes_a_file_and_the_first_is_the_home_page() {
        let pages = json!([{ "name": "home", "text": "Hello\n\nWelcome" }, { "name": "about", "text": "Us & <you>" }]);

        let answer = ask(&json!({ "title": "Shop", "pages": pages }), &json!({}));

        let data = &answer.children[0]["data"];
        assert_eq!(data["index.html"], data["home.html"]);
        let home = data["home.html"].as_str().unwrap();
        assert!(home.ends_with("<p>Hello</p>\n<p>Welcome</p>\n"), "{home}");
        assert!(
            data["about.html"]
                .as_str()
                .unwrap()
                .contains("Us &amp; &lt;you>")
        );
        assert_eq!(answer.status.pages, 2);
    }

    #[test]
    fn new_pages_need_new_servers_and_a_new_number_of_servers_does_not() {
        let template = |spec| ask(&spec, &json!({})).children[1]["spec"]["template"].clone();
        let page = |text| json!([{ "name": "home", "text": text }]);

        let first = template(json!({ "title": "Shop", "pages": page("a") }));
        let more = template(json!({ "title": "Shop", "pages": page("a"), "replicas": 3 }));
        let other = template(json!({ "title": "Shop", "pages": page("b") }));

        assert_eq!(first, more);
        assert_ne!(first, other);
    }

    #[test]
    fn the_status_tells_how_many_servers_are_ready() {
        let children =
            json!({ "Deployment.apps/v1": { "shop": { "status": { "readyReplicas": 1 } } } });

        let answer = ask(
            &json!({ "title": "Shop", "pages": [], "replicas": 2 }),
            &children,
        );

        assert_eq!(answer.status.servers, "1 of 2 ready");
    }
}
