//! The word that was probably meant.

/// How alike two words must be, between 0 and 1: one slip in a short word, two in a long one.
const ALIKE: f64 = 0.75;

/// The known word that is most like `word`, if one is like it at all.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    known
        .into_iter()
        .map(|known| (strsim::jaro_winkler(&lower, &known.to_lowercase()), known))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, known)| known)
}

/// `; did you mean <word>?`, or nothing.
pub fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |known| format!("; did you mean {known}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_keyboard_finds_the_word_and_a_stranger_finds_none() {
        let known = ["childResources", "parentResource", "hooks"];

        assert_eq!(nearest("childResource", known), Some("childResources"));
        assert_eq!(nearest("chidlResources", known), Some("childResources"));
        assert_eq!(nearest("Hooks", known), Some("hooks"));
        assert_eq!(nearest("zzz", known), None);
    }
}
