//! One page of a list: its items as objects that carry their kind.

use bytes::Bytes;
use metashard_api::resource::Resource;
use metashard_reconcile::object::{Error, Object};
use serde::Deserialize;
use serde_json::value::RawValue;

/// One page of a list.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    /// resourceVersion of the list, the same on all of its pages.
    pub(crate) resource_version: String,
    /// Where the next page begins; `None` on the last one.
    pub(crate) next: Option<String>,
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Body<'a> {
    metadata: Metadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    resource_version: String,
    #[serde(rename = "continue", default)]
    next: String,
}

impl<'a> Page<'a> {
    /// Reads the body of a list's answer.
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, serde_json::Error> {
        let Body { metadata, items } = serde_json::from_slice(body)?;
        Ok(Self {
            resource_version: metadata.resource_version,
            next: Some(metadata.next).filter(|next| !next.is_empty()),
            items: items.unwrap_or_default(),
        })
    }

    /// The items, each in an allocation of its own; items of built-in kinds lack `apiVersion` and `kind` and get them.
    pub(crate) fn objects(
        &self,
        resource: &Resource,
    ) -> impl Iterator<Item = Result<Object, Error>> {
        let kind = format!(
            r#"{{"apiVersion":"{}","kind":"{}""#,
            resource.api_version(),
            resource.kind
        );
        let lacks_kind = self.items.first().is_some_and(|item| {
            let first = Object::parse(Bytes::copy_from_slice(item.get().as_bytes()));
            matches!(first, Err(Error::Missing("apiVersion" | "kind")))
        });
        self.items.iter().map(move |item| {
            let item = item.get().as_bytes();
            Object::parse(if lacks_kind {
                with_kind(item, kind.as_bytes())
            } else {
                Bytes::copy_from_slice(item)
            })
        })
    }
}

/// `item` with the opening brace and first two fields `kind` in front of its own fields.
fn with_kind(item: &[u8], kind: &[u8]) -> Bytes {
    let fields = item
        .strip_prefix(b"{")
        .unwrap_or_default()
        .trim_ascii_start();
    let separator: &[u8] = if fields.starts_with(b"}") { b"" } else { b"," };
    Bytes::from([kind, separator, fields].concat())
}

#[cfg(test)]
mod tests {
    use metashard_api::endpoint::SourceKind;

    use super::*;

    fn config_maps() -> Resource {
        SourceKind::ConfigMap.resource()
    }

    #[test]
    fn an_item_without_kind_gets_the_lists() {
        let body = br#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"abc"},"items":[{"metadata":{"name":"a","uid":"u","resourceVersion":"3"}}]}"#;

        let page = Page::parse(body).unwrap();
        let objects: Vec<_> = page.objects(&config_maps()).map(Result::unwrap).collect();

        assert_eq!(
            (page.resource_version.as_str(), page.next.as_deref()),
            ("9", Some("abc"))
        );
        assert_eq!(
            (
                objects[0].api_version(),
                objects[0].kind(),
                objects[0].name()
            ),
            ("v1", "ConfigMap", "a")
        );
    }

    #[test]
    fn an_item_with_kind_keeps_its_bytes() {
        let item = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"u","resourceVersion":"3"}}"#;
        let body = format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{item}]}}"#);

        let page = Page::parse(body.as_bytes()).unwrap();
        let objects: Vec<_> = page.objects(&config_maps()).map(Result::unwrap).collect();

        assert_eq!(objects[0].bytes(), &item.as_bytes());
        assert_eq!(page.next, None);
    }

    #[test]
    fn a_list_of_nothing_may_say_null() {
        let page = Page::parse(br#"{"metadata":{"resourceVersion":"9"},"items":null}"#).unwrap();
        assert_eq!(page.objects(&config_maps()).count(), 0);
    }
}
