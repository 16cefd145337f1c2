//! Flags before the command, as kubectl takes them: `-n shop tree website/a`.

use std::ffi::OsString;

/// The flags that people put there and whose value may be the next word.
const WITH_VALUE: [&str; 9] = [
    "-n",
    "--namespace",
    "--context",
    "--kubeconfig",
    "-l",
    "--selector",
    "-o",
    "--output",
    "--system-namespace",
];

/// The same words with flags before the command moved behind it, but before `--`. Those of the tool itself stay.
pub(super) fn moved(args: Vec<OsString>) -> Vec<OsString> {
    let mut words = args.iter().enumerate().skip(1);
    let mut command = None;
    while let Some((index, word)) = words.next() {
        let word = word.to_string_lossy();
        if ["-h", "--help", "-V", "--version", "--"].contains(&&*word) {
            return args;
        }
        if !word.starts_with('-') {
            command = Some(index);
            break;
        }
        if WITH_VALUE.contains(&&*word) {
            words.next();
        }
    }
    let Some(command) = command.filter(|it| *it > 1) else {
        return args;
    };
    let mut args = args;
    let leading: Vec<_> = args.drain(1..command).collect();
    let end = args.iter().position(|it| it == "--").unwrap_or(args.len());
    args.splice(end..end, leading);
    args
}
