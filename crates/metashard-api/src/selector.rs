//! Label selectors, compiled: checked once, then matched against many objects.

use std::{collections::BTreeMap, fmt, str::FromStr};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde_json::Value;

use crate::{names, v1alpha1::decorator::AnnotationSelector};

mod text;

/// Why a selector is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not one of the four operators.
    #[error("operator {0:?} is none of In, NotIn, Exists and DoesNotExist")]
    Operator(String),
    /// Not a label's key.
    #[error("key {key:?}: {problem}")]
    Key {
        /// The key.
        key: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// Not a label's value.
    #[error("value {value:?} of key {key:?}: {problem}")]
    Value {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// In or NotIn without values.
    #[error("key {0:?}: In and NotIn need at least one value")]
    NoValues(String),
    /// Exists or DoesNotExist with values.
    #[error("key {0:?}: Exists and DoesNotExist take no values")]
    SomeValues(String),
    /// A parent's `spec.selector` that selects by nothing.
    #[error("spec.selector needs matchLabels, matchExpressions, or both")]
    Empty,
    /// A parent's `spec.selector` that is no selector.
    #[error("spec.selector is no label selector: {0}")]
    Shape(String),
    /// A text that is no selector.
    #[error("read {text:?} as a selector: {problem}")]
    Text {
        /// The text.
        text: String,
        /// What is wrong.
        problem: String,
    },
}

/// A compiled selector: all of its requirements must hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Selector {
    /// Sorted by key.
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Requirement {
    key: String,
    test: Test,
}

/// What is wrong with a value, if something is.
type Check = fn(&str) -> Result<(), &'static str>;

/// Values are sorted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Test {
    Equals(String),
    In(Vec<String>),
    NotEquals(String),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

impl Selector {
    /// Matches every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Compiles a selector of a spec; an empty one matches everything.
    ///
    /// # Errors
    ///
    /// Where a key, operator or value is not allowed.
    pub fn compile(selector: &LabelSelector) -> Result<Self, Error> {
        Self::from_parts(
            selector.match_labels.iter().flatten(),
            selector.match_expressions.iter().flatten(),
        )
    }

    /// Compiles what a selector is made of: pairs that must be equal, and further requirements.
    ///
    /// # Errors
    ///
    /// Where a key, operator or value is not allowed.
    pub fn from_parts<'a>(
        pairs: impl Iterator<Item = (&'a String, &'a String)>,
        expressions: impl Iterator<Item = &'a LabelSelectorRequirement>,
    ) -> Result<Self, Error> {
        Self::checked(pairs, expressions, check_value)
    }

    /// Compiles a selector over annotations; an empty one matches everything. Their values may be any text, unlike those of
    /// labels, so that it must not become a query: see [`Self::to_query`].
    ///
    /// # Errors
    ///
    /// Where a key or operator is not allowed.
    pub fn of_annotations(selector: &AnnotationSelector) -> Result<Self, Error> {
        let expressions = selector.match_expressions.iter();
        Self::checked(selector.match_annotations.iter(), expressions, |_| Ok(()))
    }

    fn checked<'a>(
        pairs: impl Iterator<Item = (&'a String, &'a String)>,
        expressions: impl Iterator<Item = &'a LabelSelectorRequirement>,
        check: Check,
    ) -> Result<Self, Error> {
        let pairs =
            pairs.map(|(key, value)| Requirement::checked(key, Test::Equals(value.clone()), check));
        let expressions = expressions.map(|it| Requirement::from_expression(it, check));
        let mut requirements = pairs.chain(expressions).collect::<Result<Vec<_>, _>>()?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements })
    }

    /// The selector of the children of a parent with a generated one: label `controller-uid` with the parent's uid.
    ///
    /// # Errors
    ///
    /// Where the uid cannot be a label's value.
    pub fn generated(parent_uid: &str) -> Result<Self, Error> {
        let test = Test::Equals(parent_uid.to_owned());
        Ok(Self {
            requirements: vec![Requirement::new(names::LABEL_CONTROLLER_UID, test)?],
        })
    }

    /// The selector of the children of a parent, from its `spec`.
    ///
    /// # Errors
    ///
    /// Where there is no `selector`, or one that selects by nothing, or one that is not allowed.
    pub fn of_children(parent_spec: Option<&Value>) -> Result<Self, Error> {
        let selector = match parent_spec {
            None | Some(Value::Null) => return Err(Error::Empty),
            Some(Value::Object(spec)) => spec.get("selector").filter(|value| !value.is_null()),
            Some(_) => return Err(Error::Shape("spec is no object".to_owned())),
        };
        let selector = selector.ok_or(Error::Empty)?;
        let labels = Lenient::read(selector)?;
        let compiled = Self::from_parts(labels.pairs.iter(), labels.expressions.iter())?;
        if compiled.is_everything() {
            Err(Error::Empty)
        } else {
            Ok(compiled)
        }
    }

    /// Whether an object whose label (or annotation) of a given key is `value(key)` matches.
    pub fn matches<T: AsRef<str>>(&self, value: impl Fn(&str) -> Option<T>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = value(&requirement.key);
            requirement.test.holds(value.as_ref().map(T::as_ref))
        })
    }

    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The text for `labelSelector` in a list or watch; `None` if every object matches.
    pub fn to_query(&self) -> Option<String> {
        if self.is_everything() {
            None
        } else {
            Some(self.to_string())
        }
    }
}

/// The form that the API server and `kubectl` read: `app=web,tier in (a,b),!x`.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Requirement { key, test }) in self.requirements.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match test {
                Test::Equals(value) => write!(f, "{comma}{key}={value}")?,
                Test::In(values) => write!(f, "{comma}{key} in ({})", values.join(","))?,
                Test::NotEquals(value) => write!(f, "{comma}{key}!={value}")?,
                Test::NotIn(values) => write!(f, "{comma}{key} notin ({})", values.join(","))?,
                Test::Exists => write!(f, "{comma}{key}")?,
                Test::DoesNotExist => write!(f, "{comma}!{key}")?,
                Test::GreaterThan(bound) => write!(f, "{comma}{key}>{bound}")?,
                Test::LessThan(bound) => write!(f, "{comma}{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

/// Reads the form that `kubectl -l` takes; an empty text selects everything.
impl FromStr for Selector {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        text::parse(text)
    }
}

impl Requirement {
    fn new(key: &str, test: Test) -> Result<Self, Error> {
        Self::checked(key, test, check_value)
    }

    fn checked(key: &str, test: Test, check: Check) -> Result<Self, Error> {
        check_key(key).map_err(|problem| Error::Key {
            key: key.to_owned(),
            problem,
        })?;
        let values = match &test {
            Test::Equals(value) | Test::NotEquals(value) => std::slice::from_ref(value),
            Test::In(values) | Test::NotIn(values) => values.as_slice(),
            Test::Exists | Test::DoesNotExist | Test::GreaterThan(_) | Test::LessThan(_) => &[],
        };
        for value in values {
            check(value).map_err(|problem| Error::Value {
                key: key.to_owned(),
                value: value.clone(),
                problem,
            })?;
        }
        Ok(Self {
            key: key.to_owned(),
            test,
        })
    }

    fn from_expression(expression: &LabelSelectorRequirement, check: Check) -> Result<Self, Error> {
        let key = expression.key.as_str();
        let values = expression.values.clone().unwrap_or_default();
        let test = match expression.operator.as_str() {
            "In" => Test::In(some_values(key, values)?),
            "NotIn" => Test::NotIn(some_values(key, values)?),
            "Exists" => no_values(key, &values, Test::Exists)?,
            "DoesNotExist" => no_values(key, &values, Test::DoesNotExist)?,
            other => return Err(Error::Operator(other.to_owned())),
        };
        Self::checked(key, test, check)
    }
}

impl Test {
    fn holds(&self, label: Option<&str>) -> bool {
        let is_one_of = |values: &[String]| {
            label.is_some_and(|label| values.iter().any(|value| value == label))
        };
        let number = || label.and_then(|label| label.parse::<i64>().ok());
        match self {
            Self::Equals(value) => label == Some(value),
            Self::NotEquals(value) => label != Some(value),
            Self::In(values) => is_one_of(values),
            Self::NotIn(values) => !is_one_of(values),
            Self::Exists => label.is_some(),
            Self::DoesNotExist => label.is_none(),
            Self::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Self::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// A `spec.selector` read as Go reads it: unknown fields are ignored and null reads as empty.
struct Lenient {
    pairs: BTreeMap<String, String>,
    expressions: Vec<LabelSelectorRequirement>,
}

impl Lenient {
    fn read(selector: &Value) -> Result<Self, Error> {
        let shape = |what: &str| Error::Shape(what.to_owned());
        let fields = selector.as_object().ok_or_else(|| shape("not an object"))?;
        let pairs = match fields.get("matchLabels") {
            None | Some(Value::Null) => BTreeMap::new(),
            Some(Value::Object(labels)) => labels
                .iter()
                .map(|(key, value)| match value {
                    Value::Null => Ok((key.clone(), String::new())),
                    Value::String(text) => Ok((key.clone(), text.clone())),
                    _ => Err(shape("a value in matchLabels is no text")),
                })
                .collect::<Result<_, _>>()?,
            Some(_) => return Err(shape("matchLabels is no object")),
        };
        let expressions = match fields.get("matchExpressions") {
            None | Some(Value::Null) => Vec::new(),
            Some(list) => serde_json::from_value(list.clone())
                .map_err(|_| shape("matchExpressions is no list of requirements"))?,
        };
        Ok(Self { pairs, expressions })
    }
}

fn some_values(key: &str, mut values: Vec<String>) -> Result<Vec<String>, Error> {
    if values.is_empty() {
        return Err(Error::NoValues(key.to_owned()));
    }
    values.sort_unstable();
    Ok(values)
}

fn no_values(key: &str, values: &[String], test: Test) -> Result<Test, Error> {
    if values.is_empty() {
        Ok(test)
    } else {
        Err(Error::SomeValues(key.to_owned()))
    }
}

const SHAPE: &str = "letters, digits, '-', '_' and '.' only, with a letter or digit at both ends";

/// An optional DNS name and a slash, then a name.
fn check_key(key: &str) -> Result<(), &'static str> {
    let (prefix, name) = match key.split_once('/') {
        None => (None, key),
        Some((_, name)) if name.contains('/') => return Err("more than one slash"),
        Some((prefix, name)) => (Some(prefix), name),
    };
    match prefix {
        Some("") => return Err("nothing before the slash"),
        Some(prefix) if prefix.len() > 253 => return Err("more than 253 bytes before the slash"),
        Some(prefix) if !prefix.split('.').all(is_dns_label) => {
            return Err("what is before the slash is no lower-case DNS name");
        }
        _ => {}
    }
    match name {
        "" => Err("no name"),
        name if name.len() > 63 => Err("a name of more than 63 bytes"),
        name if !is_label_text(name) => Err(SHAPE),
        _ => Ok(()),
    }
}

fn check_value(value: &str) -> Result<(), &'static str> {
    match value {
        value if value.len() > 63 => Err("more than 63 bytes"),
        value if !value.is_empty() && !is_label_text(value) => Err(SHAPE),
        _ => Ok(()),
    }
}

fn is_label_text(text: &str) -> bool {
    let at_ends = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(at_ends)
        && text.ends_with(at_ends)
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

fn is_dns_label(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(is_plain)
        && text.ends_with(is_plain)
        && text.chars().all(|c| is_plain(c) || c == '-')
}

#[cfg(test)]
mod tests;
