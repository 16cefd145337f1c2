//! Whole passes of the sync machine over a small world that answers writes as an API server does.

#[cfg(test)]
mod answers;
#[cfg(test)]
mod children;
#[cfg(test)]
mod claims;
#[cfg(test)]
mod decorators;
#[cfg(test)]
mod fights;
#[cfg(test)]
mod finalizers;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod observing;
#[cfg(test)]
mod pausing;
#[cfg(test)]
mod policies;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod records;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod related;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod revisions;
#[cfg(test)]
mod rolling;
#[cfg(test)]
mod rollouts;
#[cfg(test)]
mod rollouts_random;
#[cfg(test)]
mod serverside;
#[cfg(test)]
mod status;
#[cfg(test)]
mod world;
