//! Results in the form of JUnit, which every CI system reads.

use std::fmt::Write as _;

use super::{Suite, Verdict};

/// All suites as one document.
pub fn junit(suites: &[Suite]) -> String {
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n".to_owned();
    for suite in suites {
        let of =
            |is: fn(&Verdict) -> bool| suite.results.iter().filter(|it| is(&it.verdict)).count();
        let name = escaped(&suite.file.display().to_string());
        let failures = of(|it| matches!(it, Verdict::Differs(_)));
        let errors = of(|it| matches!(it, Verdict::Failed(_)));
        let tests = suite.results.len();
        line(
            &mut text,
            &format!(
                r#"  <testsuite name="{name}" tests="{tests}" failures="{failures}" errors="{errors}">"#
            ),
        );
        for result in &suite.results {
            let head = format!(
                r#"    <testcase classname="{name}" name="{}" time="{:.3}""#,
                escaped(&result.name),
                result.took.as_secs_f64()
            );
            let (element, message) = match &result.verdict {
                Verdict::Same | Verdict::Updated => {
                    line(&mut text, &format!("{head}/>"));
                    continue;
                }
                Verdict::Differs(lines) => ("failure", lines.join("\n")),
                Verdict::Failed(message) => ("error", message.clone()),
            };
            let first = escaped(message.lines().next().unwrap_or_default());
            line(&mut text, &format!("{head}>"));
            line(
                &mut text,
                &format!(
                    r#"      <{element} message="{first}">{}</{element}>"#,
                    escaped(&message)
                ),
            );
            line(&mut text, "    </testcase>");
        }
        line(&mut text, "  </testsuite>");
    }
    text.push_str("</testsuites>\n");
    text
}

fn line(text: &mut String, line: &str) {
    // Writing to a String cannot fail.
    let _ok = writeln!(text, "{line}");
}

/// Text without what has a meaning in XML, and without what it cannot hold.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(char),
            char if char.is_control() => out.push('\u{fffd}'),
            char => out.push(char),
        }
    }
    out
}
