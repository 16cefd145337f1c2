//! Tables as kubectl prints them, which give up columns where a terminal is narrow.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Blanks between two columns.
const GAP: usize = 3;

/// Least width to which a cell is cut.
const LEAST: usize = 8;

/// A table that is not printed yet.
#[derive(Debug, Default)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Debug)]
struct Column {
    name: &'static str,
    /// The higher, the sooner it is given up; 0: never.
    dispensable: u8,
}

impl Table {
    /// A table with these columns and how dispensable each is: the highest is given up first, 0 never.
    pub(crate) fn new(columns: &[(&'static str, u8)]) -> Self {
        Self {
            columns: columns
                .iter()
                .map(|&(name, dispensable)| Column { name, dispensable })
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, with a cell for each column.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        let shown = |cell: String| match cell {
            cell if cell.is_empty() => "-".to_owned(),
            // A cell is one line, whatever somebody has written into a message.
            cell if cell.contains(char::is_control) => cell.replace(char::is_control, " "),
            cell => cell,
        };
        self.rows.push(cells.into_iter().map(shown).collect());
    }

    /// The lines, none of them longer than `width` if that can be.
    pub(crate) fn lines(&self, width: usize) -> Vec<String> {
        let mut kept: Vec<usize> = (0..self.columns.len()).collect();
        let dispensable = |index: &usize| self.columns.get(*index).map_or(0, |it| it.dispensable);
        while self.total(&kept) > width {
            let Some(worst) = kept.iter().copied().max_by_key(|it| (dispensable(it), *it)) else {
                break;
            };
            if dispensable(&worst) == 0 {
                break;
            }
            kept.retain(|it| *it != worst);
        }
        let mut widths: Vec<usize> = kept.iter().map(|it| self.width(*it)).collect();
        let over = self.total(&kept).saturating_sub(width);
        if let Some(widest) = widths.iter_mut().max() {
            *widest = widest.saturating_sub(over).max(LEAST.min(*widest));
        }
        let head = self.columns.iter().map(|it| it.name.to_owned()).collect();
        std::iter::once(&head)
            .chain(&self.rows)
            .map(|row| line(row, &kept, &widths))
            .collect()
    }

    fn width(&self, column: usize) -> usize {
        let name = self.columns.get(column).map_or(0, |it| it.name.len());
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.width()).fold(name, usize::max)
    }

    fn total(&self, columns: &[usize]) -> usize {
        let cells: usize = columns.iter().map(|it| self.width(*it)).sum();
        cells + GAP * columns.len().saturating_sub(1)
    }
}

fn line(row: &[String], kept: &[usize], widths: &[usize]) -> String {
    let mut line = String::new();
    for (place, (column, width)) in kept.iter().zip(widths).enumerate() {
        let cell = cut(row.get(*column).map_or("", String::as_str), *width);
        line.push_str(&cell);
        if place + 1 < kept.len() {
            let blanks = width.saturating_sub(cell.width()) + GAP;
            line.extend(std::iter::repeat_n(' ', blanks));
        }
    }
    line.trim_end().to_owned()
}

/// A text that takes at most so many columns: some characters take two.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let (mut cut, mut taken) = (String::new(), 1);
    for char in text.chars() {
        taken += char.width().unwrap_or(0);
        if taken > width {
            break;
        }
        cut.push(char);
    }
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[("NAME", 0), ("READY", 0), ("REASON", 1), ("WORKER", 2)]);
        table.row(
            ["websites", "True", "", "replica-with-a-long-name"]
                .map(str::to_owned)
                .into(),
        );
        table
    }

    #[test]
    fn a_wide_terminal_shows_all_and_a_narrow_one_what_matters() {
        assert_eq!(
            table().lines(usize::MAX),
            [
                "NAME       READY   REASON   WORKER",
                "websites   True    -        replica-with-a-long-name"
            ]
        );
        assert_eq!(table().lines(40)[1], "websites   True    -");
        assert_eq!(table().lines(17)[1], "websites   True");
    }

    #[test]
    fn what_cannot_be_given_up_is_cut() {
        let mut table = Table::new(&[("NAME", 0), ("READY", 0)]);
        table.row(
            ["a-long-name-of-a-controller", "True"]
                .map(str::to_owned)
                .into(),
        );

        let lines = table.lines(20);

        assert_eq!(lines, ["NAME           READY", "a-long-name…   True"]);
    }
    #[test]
    fn a_cell_is_one_line_and_takes_as_many_columns_as_it_is_wide() {
        let mut table = Table::new(&[("NAME", 0), ("REASON", 0)]);
        table.row(["a", "one\ntwo\u{1b}[2J"].map(str::to_owned).into());
        table.row(["漢字漢字漢字", "-"].map(str::to_owned).into());

        assert_eq!(
            table.lines(usize::MAX)[1..],
            ["a              one two [2J", "漢字漢字漢字   -"]
        );
        let narrow = table.lines(24);
        assert!(narrow.iter().all(|it| it.width() <= 24), "{narrow:?}");
    }
}
