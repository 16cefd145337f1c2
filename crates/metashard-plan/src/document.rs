//! Objects from files: YAML with any number of documents, JSON, and lists in either.

use std::{
    ffi::OsStr,
    fmt,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// One document of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Where it is from, for people.
    pub place: Place,
    /// What it says.
    pub value: Value,
}

/// Where a document is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Name of the file, `-` for the standard input.
    pub file: String,
    /// Number of the document in it, from 1; 0 if it is the only one.
    pub number: usize,
}

/// A file does not hold objects.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("read {file}")]
    Read {
        /// The file.
        file: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// It is no JSON.
    #[error("parse {file} as JSON")]
    Json {
        /// The file.
        file: String,
        /// Where it is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// It is no YAML.
    #[error("parse {file} as YAML: {text}")]
    Yaml {
        /// The file.
        file: String,
        /// Where it is wrong.
        text: String,
    },
    /// It holds another number of documents.
    #[error("read {file}: {found} documents where one is expected")]
    NotOne {
        /// The file.
        file: String,
        /// How many there are.
        found: usize,
    },
}

/// Reads all documents of a file, or of a folder's `.yaml`, `.yml` and `.json` files by name, as kubectl does; `-` is the
/// standard input.
///
/// # Errors
/// When it cannot be read or parsed.
pub fn read(path: &Path) -> Result<Vec<Document>, Error> {
    let file = path.display().to_string();
    if path.is_dir() {
        let files = manifests(path).map_err(|source| Error::Read { file, source })?;
        let all: Result<Vec<_>, _> = files.iter().map(|file| read(file)).collect();
        return Ok(all?.into_iter().flatten().collect());
    }
    parse(&file, &text(path)?)
}

/// What a file says; `-` is the standard input.
///
/// # Errors
/// When it cannot be read.
pub fn text(path: &Path) -> Result<String, Error> {
    let read = if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    read.map_err(|source| Error::Read {
        file: path.display().to_string(),
        source,
    })
}

/// The files of a folder that hold manifests, by name.
fn manifests(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let kind = path.extension().and_then(OsStr::to_str);
        if path.is_file() && matches!(kind, Some("yaml" | "yml" | "json")) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads the one document of a file.
///
/// # Errors
/// When it cannot be read or parsed, or holds none or several.
pub fn read_one(path: &Path) -> Result<Document, Error> {
    let mut documents = read(path)?;
    match (documents.pop(), documents.len()) {
        (Some(document), 0) => Ok(document),
        (last, others) => Err(Error::NotOne {
            file: path.display().to_string(),
            found: others + usize::from(last.is_some()),
        }),
    }
}

/// All documents of a text. Empty ones are left out; the items of a `List` come one by one.
///
/// # Errors
/// When it is neither YAML nor JSON.
pub fn parse(file: &str, text: &str) -> Result<Vec<Document>, Error> {
    let is_json = text.trim_start().starts_with(['{', '[']);
    let values = if is_json { json(text) } else { Ok(Vec::new()) };
    let values = match values {
        // Flow mappings of YAML begin alike.
        Ok(values) if is_json => values,
        Ok(_) => yaml(file, text)?,
        Err(source) => yaml(file, text).map_err(|_| Error::Json {
            file: file.to_owned(),
            source,
        })?,
    };
    let values: Vec<_> = values.into_iter().flat_map(items).collect();
    let is_one = values.len() == 1;
    let place = |index| Place {
        file: file.to_owned(),
        number: if is_one { 0 } else { index + 1 },
    };
    Ok(values
        .into_iter()
        .enumerate()
        .map(|(index, value)| Document {
            place: place(index),
            value,
        })
        .collect())
}

fn json(text: &str) -> Result<Vec<Value>, serde_json::Error> {
    serde_json::Deserializer::from_str(text)
        .into_iter()
        .collect()
}

fn yaml(file: &str, text: &str) -> Result<Vec<Value>, Error> {
    let mut options = serde_saphyr::Options::default();
    // The files are the user's own, and may be large.
    options.budget = None;
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| Error::Yaml {
        file: file.to_owned(),
        text: error.to_string(),
    })
}

fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(items) => items.into_iter().flat_map(items_of).collect(),
        value => items_of(value),
    }
}

fn items_of(mut value: Value) -> Vec<Value> {
    let is_list = value["kind"]
        .as_str()
        .is_some_and(|kind| kind.ends_with("List"));
    match value.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if is_list => items,
        Some(other) => {
            value["items"] = other;
            vec![value]
        }
        None => vec![value],
    }
}

impl Document {
    /// `Kind namespace/name`, as far as it is known.
    pub fn name(&self) -> String {
        name_of(&self.value)
    }
}

/// `Kind namespace/name`, as far as it is known.
pub fn name_of(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").unwrap_or("object");
    let name = text("/metadata/name").unwrap_or("without a name");
    match text("/metadata/namespace") {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// Whether a controller is meant by a word: its name, or kind and name as `-o name` prints them, for both kinds have names of
/// their own.
pub fn is_called(kind: &str, name: &str, word: &str) -> bool {
    let Some((type_, rest)) = word.split_once('/') else {
        return word == name;
    };
    let type_ = type_.split_once('.').map_or(type_, |(type_, _)| type_);
    let plural = format!("{kind}s");
    rest == name && (type_.eq_ignore_ascii_case(kind) || type_.eq_ignore_ascii_case(&plural))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => f.write_str(&self.file),
            number => write!(f, "{}[{number}]", self.file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<Value> {
        let documents = parse("f", text).unwrap();
        documents.into_iter().map(|it| it.value).collect()
    }

    #[test]
    fn a_folder_is_read_by_its_manifests_in_the_order_of_their_names() {
        let folder = std::env::temp_dir().join(format!("metashard-plan-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in [
            ("b.json", "{\"n\":2}"),
            ("a.yaml", "n: 1"),
            ("c.txt", "n: 3"),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
        }

        let found = read(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();

        let values: Vec<_> = found.iter().map(|it| it.value["n"].clone()).collect();
        assert_eq!(values, [1, 2]);
    }

    #[test]
    fn yaml_json_and_lists_give_the_same_objects() {
        let expected = values("kind: A\n---\n---\nkind: B\n");

        assert_eq!(expected.len(), 2);
        assert_eq!(values(r#"{"kind":"A"}{"kind":"B"}"#), expected);
        assert_eq!(values(r#"[{"kind":"A"},{"kind":"B"}]"#), expected);
        assert_eq!(
            values("kind: List\nitems:\n- kind: A\n- kind: B\n"),
            expected
        );
    }

    #[test]
    fn a_controller_is_called_by_its_name_or_by_kind_and_name() {
        let is_it = |word: &str| is_called("DecoratorController", "a", word);

        assert!(is_it("a") && is_it("decoratorcontroller/a") && is_it("DecoratorControllers/a"));
        assert!(is_it("decoratorcontroller.metacontroller.k8s.io/a"));
        assert!(!is_it("compositecontroller/a") && !is_it("web/a") && !is_it("b"));
    }

    #[test]
    fn a_mistake_names_the_file_and_the_place() {
        let error = parse("a.json", r#"{"kind": "A""#).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string);

        assert!(error.to_string().contains("a.json"), "{error}");
        assert!(source.is_some_and(|it| it.contains("line 1")));
        let error = parse("a.yaml", "a: [1").unwrap_err().to_string();
        assert!(error.contains("a.yaml") && error.contains('1'), "{error}");
    }
}
