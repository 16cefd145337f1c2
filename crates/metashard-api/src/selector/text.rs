//! The text form of a selector, as flags have it: `a=b, c != d, e in (f, g), h, !i, j > 3`.

use super::{Error, Requirement, Selector, Test, some_values};

pub(super) fn parse(text: &str) -> Result<Selector, Error> {
    let tokens = split(text);
    let mut parser = Parser {
        text,
        tokens: &tokens,
        at: 0,
    };
    let mut requirements = Vec::new();
    if tokens.is_empty() {
        return Ok(Selector::everything());
    }
    loop {
        requirements.push(parser.requirement()?);
        match parser.next() {
            None => break,
            Some(",") => {}
            Some(other) => return Err(parser.error(format!("{other:?} in place of a comma"))),
        }
    }
    requirements.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(Selector { requirements })
}

struct Parser<'a> {
    text: &'a str,
    tokens: &'a [&'a str],
    at: usize,
}

impl<'a> Parser<'a> {
    fn requirement(&mut self) -> Result<Requirement, Error> {
        if self.peek() == Some("!") {
            self.at += 1;
            let key = self.word("a key")?;
            return Requirement::new(key, Test::DoesNotExist);
        }
        let key = self.word("a key")?;
        let test = match self.peek() {
            None | Some(",") => return Requirement::new(key, Test::Exists),
            Some(operator) => {
                self.at += 1;
                self.test(key, operator)?
            }
        };
        Requirement::new(key, test)
    }

    fn test(&mut self, key: &str, operator: &str) -> Result<Test, Error> {
        match operator {
            "=" | "==" => Ok(Test::Equals(self.value().to_owned())),
            "!=" => Ok(Test::NotEquals(self.value().to_owned())),
            "in" => Ok(Test::In(some_values(key, self.values()?)?)),
            "notin" => Ok(Test::NotIn(some_values(key, self.values()?)?)),
            ">" => Ok(Test::GreaterThan(self.number()?)),
            "<" => Ok(Test::LessThan(self.number()?)),
            other => Err(self.error(format!("{other:?} is no operator"))),
        }
    }

    /// A value, which may be empty.
    fn value(&mut self) -> &'a str {
        match self.peek() {
            None | Some(",") => "",
            Some(value) => {
                self.at += 1;
                value
            }
        }
    }

    fn values(&mut self) -> Result<Vec<String>, Error> {
        if self.next() != Some("(") {
            return Err(self.error("in and notin need values in parentheses".to_owned()));
        }
        let mut values = Vec::new();
        loop {
            let is_given = self.peek().is_some_and(|token| !is_symbol(token));
            let value = if is_given { self.next() } else { None };
            values.push(value.unwrap_or_default().to_owned());
            match self.next() {
                Some(",") => {}
                Some(")") => return Ok(values),
                _ => return Err(self.error("a comma or closing parenthesis is missing".to_owned())),
            }
        }
    }

    fn number(&mut self) -> Result<i64, Error> {
        let word = self.word("a whole number")?;
        word.parse()
            .map_err(|_| self.error(format!("{word:?} is no whole number")))
    }

    fn word(&mut self, wanted: &str) -> Result<&'a str, Error> {
        match self.next() {
            Some(word) if !is_symbol(word) => Ok(word),
            Some(other) => Err(self.error(format!("{other:?} in place of {wanted}"))),
            None => Err(self.error(format!("{wanted} is missing at the end"))),
        }
    }

    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.at).copied()
    }

    fn next(&mut self) -> Option<&'a str> {
        let token = self.peek();
        self.at += usize::from(token.is_some());
        token
    }

    fn error(&self, problem: String) -> Error {
        Error::Text {
            text: self.text.to_owned(),
            problem,
        }
    }
}

const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", ",", "(", ")", ">", "<"];

fn is_symbol(token: &str) -> bool {
    SYMBOLS.contains(&token)
}

/// Symbols, and the words between blanks and symbols.
fn split(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let length = match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            Some(symbol) => symbol.len(),
            None => rest
                .find(|c: char| c.is_whitespace() || "=!,()<>".contains(c))
                .unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}
