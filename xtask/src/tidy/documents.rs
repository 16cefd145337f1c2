//! Links between documents.

use std::path::{Component, Path, PathBuf};

/// The links of the Markdown file at `path` to files that are not there. Links to other sites are not followed.
pub(super) fn broken_links(path: &str, text: &str, exists: &dyn Fn(&Path) -> bool) -> Vec<String> {
    let folder = Path::new(path).parent().unwrap_or_else(|| Path::new(""));
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for target in targets(line) {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") || file.starts_with("mailto:") {
                continue;
            }
            if !exists(&resolve(&folder.join(file))) {
                found.push(format!(
                    "{path}:{}: links to {target}, which is not there",
                    number + 1
                ));
            }
        }
    }
    found
}

/// What follows `](` up to `)`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(')')?.0))
}

/// Takes `.` and `..` out of a path.
fn resolve(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_link_to_a_missing_file_is_found() {
        let text = "[a](../README.md) and [b](glossary.md#shard)\n[c](https://example.com/x) [d](#here) [e](gone.md)";
        let exists =
            |path: &Path| path == Path::new("README.md") || path == Path::new("docs/glossary.md");

        let found = broken_links("docs/guide.md", text, &exists);

        assert_eq!(
            found,
            ["docs/guide.md:2: links to gone.md, which is not there"]
        );
    }
}
