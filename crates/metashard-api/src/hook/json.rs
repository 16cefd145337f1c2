//! A JSON reader for answers: Go's rules where they differ from serde_json's, repeated fields noted, limits kept.
//!
//! As Go reads: invalid UTF-8 and lone surrogates become U+FFFD; an integer literal outside of 64 bits becomes a
//! float; `-0` is 0; a float out of range is an error; of a repeated field the last one wins.

use serde_json::{Map, Number, Value};

/// Most objects and lists within each other.
pub const MAX_DEPTH: usize = 64;

/// Most values in one answer; a parsed value costs many times its bytes.
pub const MAX_VALUES: usize = 200_000;

/// Longest text, in bytes as received.
pub const MAX_TEXT: usize = 1 << 20;

/// Repeated fields that are named; there may be more.
const MAX_REPEATED: usize = 16;

/// Why bytes are not read as JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing, or blanks only.
    #[error("it is empty; answer with a JSON object")]
    Empty,
    /// A page for people.
    #[error("it begins as HTML does; answer with a JSON object")]
    Markup,
    /// Not JSON.
    #[error("malformed JSON at byte {offset}: {wanted} expected")]
    Malformed {
        /// Where.
        offset: usize,
        /// What would have been right there.
        wanted: &'static str,
    },
    /// A number that no float can hold.
    #[error("number at byte {offset} is out of range")]
    NumberOutOfRange {
        /// Where.
        offset: usize,
    },
    /// More objects and lists within each other than [`MAX_DEPTH`].
    #[error("more than {MAX_DEPTH} objects and lists within each other")]
    TooDeep,
    /// More values than [`MAX_VALUES`].
    #[error("more than {MAX_VALUES} values")]
    TooManyValues,
    /// A text longer than [`MAX_TEXT`].
    #[error("text at byte {offset} is longer than {MAX_TEXT} bytes")]
    TextTooLong {
        /// Where.
        offset: usize,
    },
}

/// What is to be known of the fields of the outermost object.
#[derive(Debug, Clone, Copy)]
pub struct Fields {
    /// Fields with a meaning; others are read, and their inside does not matter.
    pub known: &'static [&'static str],
    /// Known fields that hold whole objects, inside which repeated fields are not noted.
    pub opaque: &'static [&'static str],
}

/// The outermost object of an answer.
#[derive(Debug, Default)]
pub struct Document {
    /// Its fields.
    pub fields: Map<String, Value>,
    /// Paths of repeated fields, as far as [`Fields`] says that they matter.
    pub repeated: Vec<String>,
}

/// What an answer holds at its outermost level.
#[derive(Debug)]
pub enum Outermost {
    /// An object; `null` counts as an empty one.
    Object(Document),
    /// Something else, by the name of its type.
    Other(&'static str),
}

/// Reads a whole answer.
///
/// # Errors
///
/// Where it is not JSON, or beyond the limits.
pub fn read(bytes: &[u8], fields: Fields) -> Result<Outermost, Error> {
    let mut reader = Reader {
        bytes,
        at: 0,
        depth: 0,
        values: 0,
        repeated: Vec::new(),
    };
    reader.skip_blanks();
    match reader.peek() {
        None => return Err(Error::Empty),
        Some(b'<') => return Err(Error::Markup),
        Some(_) => {}
    }
    let outermost = if reader.peek() == Some(b'{') {
        let fields = reader.outermost_object(fields)?;
        Outermost::Object(Document {
            fields,
            repeated: std::mem::take(&mut reader.repeated),
        })
    } else {
        match reader.value(false)? {
            Value::Null => Outermost::Object(Document::default()),
            other => Outermost::Other(type_name(&other)),
        }
    };
    reader.skip_blanks();
    if reader.at < bytes.len() {
        return Err(reader.malformed("the end"));
    }
    Ok(outermost)
}

/// The JSON name of a value's type.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    values: usize,
    /// Paths relative to the value that is being read; whoever reads a member or element puts its own part in front.
    repeated: Vec<String>,
}

impl Reader<'_> {
    fn outermost_object(&mut self, wanted: Fields) -> Result<Map<String, Value>, Error> {
        let mut fields = Map::new();
        self.members(|reader, key| {
            let is_known = wanted.known.contains(&key.as_str());
            let notes = is_known && !wanted.opaque.contains(&key.as_str());
            let value = reader.noting(notes, &key, |reader| reader.value(notes))?;
            if is_known && fields.contains_key(&key) {
                reader.note(key.clone());
            }
            match (fields.get_mut(&key), value) {
                // As Go does: an object given twice is filled twice.
                (Some(Value::Object(first)), Value::Object(second)) => first.extend(second),
                (_, value) => drop(fields.insert(key, value)),
            }
            Ok(())
        })?;
        Ok(fields)
    }

    /// Reads one value. `notes`: whether repeated fields in it are noted.
    fn value(&mut self, notes: bool) -> Result<Value, Error> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(Error::TooManyValues);
        }
        self.skip_blanks();
        match self.peek() {
            Some(b'{') => self.object(notes).map(Value::Object),
            Some(b'[') => self.list(notes).map(Value::Array),
            Some(b'"') => self.text().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::Number),
            Some(b't') => self.word(b"true", Value::Bool(true)),
            Some(b'f') => self.word(b"false", Value::Bool(false)),
            Some(b'n') => self.word(b"null", Value::Null),
            _ => Err(self.malformed("a value")),
        }
    }

    fn object(&mut self, notes: bool) -> Result<Map<String, Value>, Error> {
        let mut fields = Map::new();
        self.members(|reader, key| {
            let value = reader.noting(notes, &key, |reader| reader.value(notes))?;
            if notes && fields.contains_key(&key) {
                reader.note(key.clone());
            }
            fields.insert(key, value);
            Ok(())
        })?;
        Ok(fields)
    }

    /// Reads an object, calling `member` with each key when its value is next.
    fn members(
        &mut self,
        mut member: impl FnMut(&mut Self, String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.enter()?;
        self.skip_blanks();
        if !self.take(b'}') {
            loop {
                self.skip_blanks();
                let key = self.text()?;
                self.skip_blanks();
                self.expect(b':', "a colon")?;
                member(self, key)?;
                self.skip_blanks();
                if self.take(b'}') {
                    break;
                }
                self.expect(b',', "a comma or closing brace")?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn list(&mut self, notes: bool) -> Result<Vec<Value>, Error> {
        self.enter()?;
        let mut items = Vec::new();
        self.skip_blanks();
        if !self.take(b']') {
            loop {
                let first = self.repeated.len();
                items.push(self.value(notes)?);
                if self.repeated.len() > first {
                    self.put_in_front(first, &format!("[{}]", items.len() - 1));
                }
                self.skip_blanks();
                if self.take(b']') {
                    break;
                }
                self.expect(b',', "a comma or closing bracket")?;
            }
        }
        self.depth -= 1;
        Ok(items)
    }

    /// Puts `key` in front of what `read` notes.
    fn noting(
        &mut self,
        notes: bool,
        key: &str,
        read: impl FnOnce(&mut Self) -> Result<Value, Error>,
    ) -> Result<Value, Error> {
        let first = self.repeated.len();
        let value = read(self)?;
        if notes {
            self.put_in_front(first, key);
        }
        Ok(value)
    }

    fn put_in_front(&mut self, first: usize, part: &str) {
        for path in self.repeated.iter_mut().skip(first) {
            let dot = if path.starts_with('[') { "" } else { "." };
            *path = format!("{part}{dot}{path}");
        }
    }

    fn note(&mut self, path: String) {
        if self.repeated.len() < MAX_REPEATED {
            self.repeated.push(path);
        }
    }

    /// Steps over the opening character of an object or list.
    fn enter(&mut self) -> Result<(), Error> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            Err(Error::TooDeep)
        } else {
            Ok(())
        }
    }

    fn word(&mut self, word: &'static [u8], value: Value) -> Result<Value, Error> {
        if self.rest().starts_with(word) {
            self.at += word.len();
            Ok(value)
        } else {
            Err(self.malformed("a value"))
        }
    }

    fn number(&mut self) -> Result<Number, Error> {
        let start = self.at;
        let mut is_integer = true;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            is_integer = false;
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            is_integer = false;
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        let literal = self.bytes.get(start..self.at).unwrap_or_default();
        let literal = str::from_utf8(literal).unwrap_or_default();
        if is_integer && let Ok(integer) = literal.parse::<i64>() {
            return Ok(integer.into());
        }
        literal
            .parse::<f64>()
            .ok()
            .and_then(Number::from_f64)
            .ok_or(Error::NumberOutOfRange { offset: start })
    }

    fn digits(&mut self) -> Result<(), Error> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start {
            Err(self.malformed("a digit"))
        } else {
            Ok(())
        }
    }

    fn text(&mut self) -> Result<String, Error> {
        self.expect(b'"', "a text")?;
        let start = self.at;
        let mut text = String::new();
        loop {
            let run = self
                .rest()
                .iter()
                .take_while(|&&byte| byte >= 0x20 && byte != b'"' && byte != b'\\')
                .count();
            push_lossy(&mut text, self.rest().get(..run).unwrap_or_default());
            self.at += run;
            if self.at - start > MAX_TEXT {
                return Err(Error::TextTooLong { offset: start });
            }
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    self.at += 1;
                    text.push(self.escape()?);
                }
                _ => return Err(self.malformed("the end of a text")),
            }
        }
    }

    /// Reads what follows a backslash.
    fn escape(&mut self) -> Result<char, Error> {
        let escaped = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode_escape();
            }
            _ => return Err(self.malformed("an escape")),
        };
        self.at += 1;
        Ok(escaped)
    }

    fn unicode_escape(&mut self) -> Result<char, Error> {
        let first = self.hex4()?;
        if (0xd800..0xdc00).contains(&first) && self.rest().starts_with(b"\\u") {
            let before = self.at;
            self.at += 2;
            let second = self.hex4()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            // Not its other half: read on its own.
            self.at = before;
        }
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hex4(&mut self) -> Result<u32, Error> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.malformed("a hexadecimal digit"))?;
            self.at += 1;
        }
        Ok(code)
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8, wanted: &'static str) -> Result<(), Error> {
        if self.take(byte) {
            Ok(())
        } else {
            Err(self.malformed(wanted))
        }
    }

    fn malformed(&self, wanted: &'static str) -> Error {
        Error::Malformed {
            offset: self.at,
            wanted,
        }
    }
}

/// Appends bytes, with one U+FFFD for each byte that is no UTF-8.
fn push_lossy(text: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
}

#[cfg(test)]
mod tests;
