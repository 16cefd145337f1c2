//! pprof's form of a profile: a protobuf message, of which a few fields are needed.

use std::collections::BTreeMap;

/// Numbers of fields in pprof's `profile.proto`.
mod field {
    pub(super) const PROFILE_SAMPLE_TYPE: u64 = 1;
    pub(super) const PROFILE_SAMPLE: u64 = 2;
    pub(super) const PROFILE_LOCATION: u64 = 4;
    pub(super) const PROFILE_FUNCTION: u64 = 5;
    pub(super) const PROFILE_STRING: u64 = 6;
    pub(super) const TYPE_NAME: u64 = 1;
    pub(super) const TYPE_UNIT: u64 = 2;
    pub(super) const SAMPLE_LOCATIONS: u64 = 1;
    pub(super) const SAMPLE_VALUES: u64 = 2;
    pub(super) const LOCATION_ID: u64 = 1;
    pub(super) const LOCATION_LINE: u64 = 4;
    pub(super) const LINE_FUNCTION: u64 = 1;
    pub(super) const FUNCTION_ID: u64 = 1;
    pub(super) const FUNCTION_NAME: u64 = 2;
}

/// Samples of two values each, at stacks of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Profile {
    types: [(&'static str, &'static str); 2],
    samples: Vec<(Vec<String>, [u64; 2])>,
}

/// Texts and their places in the table, the empty one first.
struct Strings<'a> {
    texts: Vec<&'a str>,
    places: BTreeMap<&'a str, u64>,
}

impl Profile {
    /// An empty one. `types`: name and unit of each value.
    pub(super) fn new(types: [(&'static str, &'static str); 2]) -> Self {
        Self {
            types,
            samples: Vec::new(),
        }
    }

    /// Adds a sample; the innermost name comes first.
    pub(super) fn add(&mut self, stack: &[&str], values: [u64; 2]) {
        let stack = stack.iter().map(|name| (*name).to_owned());
        self.samples.push((stack.collect(), values));
    }

    /// The message.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut strings = Strings::new();
        let mut out = Vec::new();
        for (name, unit) in self.types {
            let mut type_ = Vec::new();
            put_number(&mut type_, field::TYPE_NAME, strings.place(name));
            put_number(&mut type_, field::TYPE_UNIT, strings.place(unit));
            put_bytes(&mut out, field::PROFILE_SAMPLE_TYPE, &type_);
        }
        // A name is a function at one location; both have the place of the name as their id.
        let mut names = Vec::new();
        for (stack, values) in &self.samples {
            let places: Vec<u64> = stack.iter().map(|name| strings.place(name)).collect();
            let mut sample = Vec::new();
            put_packed(&mut sample, field::SAMPLE_LOCATIONS, &places);
            put_packed(&mut sample, field::SAMPLE_VALUES, values);
            put_bytes(&mut out, field::PROFILE_SAMPLE, &sample);
            names.extend(places);
        }
        names.sort_unstable();
        names.dedup();
        for name in names {
            put_name(&mut out, name);
        }
        for text in &strings.texts {
            put_bytes(&mut out, field::PROFILE_STRING, text.as_bytes());
        }
        out
    }
}

impl<'a> Strings<'a> {
    fn new() -> Self {
        Self {
            texts: vec![""],
            places: BTreeMap::from([("", 0)]),
        }
    }

    fn place(&mut self, text: &'a str) -> u64 {
        let next = self.texts.len() as u64;
        let place = *self.places.entry(text).or_insert(next);
        if place == next {
            self.texts.push(text);
        }
        place
    }
}

fn put_name(out: &mut Vec<u8>, name: u64) {
    let mut line = Vec::new();
    put_number(&mut line, field::LINE_FUNCTION, name);
    let mut location = Vec::new();
    put_number(&mut location, field::LOCATION_ID, name);
    put_bytes(&mut location, field::LOCATION_LINE, &line);
    put_bytes(out, field::PROFILE_LOCATION, &location);
    let mut function = Vec::new();
    put_number(&mut function, field::FUNCTION_ID, name);
    put_number(&mut function, field::FUNCTION_NAME, name);
    put_bytes(out, field::PROFILE_FUNCTION, &function);
}

fn put_number(out: &mut Vec<u8>, field: u64, number: u64) {
    put_varint(out, field << 3);
    put_varint(out, number);
}

fn put_packed(out: &mut Vec<u8>, field: u64, numbers: &[u64]) {
    let mut packed = Vec::new();
    for number in numbers {
        put_varint(&mut packed, *number);
    }
    put_bytes(out, field, &packed);
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, (field << 3) | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_has_types_samples_locations_functions_and_texts() {
        let mut profile = Profile::new([("a", "b"), ("c", "b")]);
        profile.add(&["leaf", "root"], [1, 300]);

        let expected: &[&[u8]] = &[
            // Types: the places of their names and units.
            &[0x0a, 4, 0x08, 1, 0x10, 2],
            &[0x0a, 4, 0x08, 3, 0x10, 2],
            // The sample: locations 4 and 5, values 1 and 300.
            &[0x12, 9, 0x0a, 2, 4, 5, 0x12, 3, 1, 0xac, 0x02],
            // Location 4 is function 4, whose name is text 4; and so on.
            &[0x22, 6, 0x08, 4, 0x22, 2, 0x08, 4],
            &[0x2a, 4, 0x08, 4, 0x10, 4],
            &[0x22, 6, 0x08, 5, 0x22, 2, 0x08, 5],
            &[0x2a, 4, 0x08, 5, 0x10, 5],
            &[0x32, 0],
            b"\x32\x01a\x32\x01b\x32\x01c\x32\x04leaf\x32\x04root",
        ];
        assert_eq!(profile.encode(), expected.concat());
    }
}
