//! The three-way merge: recorded behaviour of Metacontroller, and properties on random trees.

#[cfg(test)]
mod model;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod quirks;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod revisions;
