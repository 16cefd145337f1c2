//! What must hold of the history of any machine, whatever a test has done with it.

use serde::{Serialize, de::DeserializeOwned};

use super::{History, Machine};

/// Every decision is made again the same, and the machine survives a file.
pub(crate) fn check<M>(history: &History<M>, machine: &M)
where
    M: Machine + Serialize + DeserializeOwned + PartialEq,
{
    for again in history.recording().replay() {
        assert!(again.is_same(), "decided otherwise: {again:?}");
    }
    let text = serde_json::to_string(machine).expect("a machine can be written");
    let read: M = serde_json::from_str(&text).expect("a machine can be read");
    assert!(read == *machine, "read as {read:?}");
}
