//! A plot of one value over time, with marks for what happened, as SVG.

use std::{fmt::Write as _, time::Duration};

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 360.0;
/// Room around the plot.
const MARGIN: f64 = 56.0;
const COLOURS: [&str; 4] = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd"];

/// What to draw.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plot {
    /// What the values are of.
    pub(crate) unit: String,
    pub(crate) series: Vec<Series>,
    /// What happened, and when.
    pub(crate) marks: Vec<(Duration, String)>,
}

/// Values over time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(Duration, f64)>,
}

impl Plot {
    /// The picture.
    pub(crate) fn svg(&self, title: &str) -> Result<String, std::fmt::Error> {
        let points = || self.series.iter().flat_map(|it| &it.points);
        let end = points().map(|it| it.0.as_secs_f64()).fold(1.0, f64::max);
        let top = points().map(|it| it.1).fold(f64::MIN_POSITIVE, f64::max);
        let x = |at: f64| MARGIN + at / end * (WIDTH - 2.0 * MARGIN);
        let y = |value: f64| HEIGHT - MARGIN - value / top * (HEIGHT - 2.0 * MARGIN);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
             <text x=\"{MARGIN}\" y=\"20\" font-size=\"14\">{}: {}</text>\n",
            escaped(title),
            escaped(&self.unit),
        );
        for step in 0..=4 {
            let part = f64::from(step) / 4.0;
            let (value, at) = (part * top, part * end);
            writeln!(
                svg,
                "<line x1=\"{MARGIN}\" x2=\"{:.0}\" y1=\"{2:.1}\" y2=\"{2:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"4\" y=\"{2:.1}\">{value:.2}</text>\
                 <text x=\"{1:.1}\" y=\"{3:.0}\">{at:.0} s</text>",
                WIDTH - MARGIN,
                x(at),
                y(value),
                HEIGHT - MARGIN + 16.0,
            )?;
        }
        for (at, label) in &self.marks {
            writeln!(
                svg,
                "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{MARGIN}\" y2=\"{1:.0}\" stroke=\"#f0a000\" stroke-dasharray=\"2 3\"><title>{2}</title></line>",
                x(at.as_secs_f64()),
                HEIGHT - MARGIN,
                escaped(label),
            )?;
        }
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            let line: Vec<String> = series
                .points
                .iter()
                .map(|(at, value)| format!("{:.1},{:.1}", x(at.as_secs_f64()), y(*value)))
                .collect();
            writeln!(
                svg,
                "<polyline fill=\"none\" stroke=\"{colour}\" points=\"{}\"><title>{}</title></polyline>",
                line.join(" "),
                escaped(&series.name),
            )?;
        }
        for (n, (series, colour)) in (0_u32..).zip(self.series.iter().zip(COLOURS.iter().cycle())) {
            writeln!(
                svg,
                "<text x=\"{:.0}\" y=\"{:.0}\" fill=\"{colour}\">{}</text>",
                WIDTH - 4.0 * MARGIN,
                20.0 + 14.0 * f64::from(n),
                escaped(&series.name),
            )?;
        }
        svg.push_str("</svg>\n");
        Ok(svg)
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_a_line_for_each_series_and_for_each_mark() {
        let plot = Plot {
            unit: "ms".to_owned(),
            series: vec![Series {
                name: "a < b".to_owned(),
                points: vec![(Duration::ZERO, 0.0), (Duration::from_secs(10), 5.0)],
            }],
            marks: vec![(Duration::from_secs(5), "SIGKILL".to_owned())],
        };

        let svg = plot.svg("chaos").unwrap();

        assert!(svg.contains("points=\"56.0,304.0 944.0,56.0\""), "{svg}");
        assert!(svg.contains("<title>SIGKILL</title>"));
        assert!(svg.contains("a &lt; b"));
    }
}
