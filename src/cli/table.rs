//! Aligned columns.

/// How a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Lines of cells; a line may have fewer cells than there are columns.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Headers of numbers are right-aligned like the numbers.
    pub fn new(columns: &[(&str, Align)]) -> Table {
        let headers = columns.iter().map(|(header, _)| (*header).to_owned()).collect();
        Table { columns: columns.iter().map(|(_, align)| *align).collect(), rows: vec![headers] }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Two spaces between columns, none at the end of a line.
    pub fn render(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&self.columns).zip(&widths);
            let cells: Vec<String> = cells
                .map(|((cell, align), &width)| match align {
                    Align::Left => format!("{cell:<width$}"),
                    Align::Right => format!("{cell:>width$}"),
                })
                .collect();
            out.push_str(cells.join("  ").trim_end());
            out.push('\n');
        }
        out
    }
}

/// At most `width` characters; what is cut is marked. Controls, which a terminal would act on,
/// become the replacement character.
pub fn fit(text: &str, width: usize) -> String {
    let safe = text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c });
    if text.chars().count() <= width {
        return safe.collect();
    }
    safe.take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_lines_end_clean() {
        let mut table =
            Table::new(&[("NAME", Align::Left), ("N", Align::Right), ("", Align::Left)]);
        table.row(["é".into(), "100".into(), String::new()]);
        table.row(["long-name".into()]);
        assert_eq!(table.render(), "NAME         N\né          100\nlong-name\n");
    }

    #[test]
    fn long_and_odd_text_is_made_to_fit() {
        for (input, width, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("é🚀xy", 3, "é🚀…"),
            ("a\x1b[", 9, "a\u{fffd}["),
        ] {
            assert_eq!(fit(input, width), expected);
        }
    }
}
