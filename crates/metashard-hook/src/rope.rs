//! A request body in pieces, sent without being copied together.

use std::{
    convert::Infallible,
    io::IoSlice,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};

/// Bytes in pieces. A clone starts where the original stands and shares the pieces.
#[derive(Debug, Clone)]
pub(crate) struct Rope {
    pieces: Arc<[Bytes]>,
    /// Index of the first piece that is not used up.
    piece: usize,
    /// Bytes of that piece that are used up; less than its length.
    used: usize,
    remaining: usize,
}

/// A rope as an HTTP body: one frame, and a length known before.
#[derive(Debug)]
pub(crate) struct RopeBody(Option<Rope>);

impl From<Vec<Bytes>> for Rope {
    fn from(pieces: Vec<Bytes>) -> Self {
        let remaining = pieces.iter().map(Bytes::len).sum();
        let mut rope = Self {
            pieces: pieces.into(),
            piece: 0,
            used: 0,
            remaining,
        };
        rope.skip_empty();
        rope
    }
}

impl Rope {
    /// What is left of the current piece and the pieces after it.
    fn rest(&self) -> impl Iterator<Item = &[u8]> {
        let mut used = self.used;
        self.pieces
            .iter()
            .skip(self.piece)
            .filter_map(move |piece| {
                let rest = piece.get(std::mem::take(&mut used)..)?;
                (!rest.is_empty()).then_some(rest)
            })
    }

    fn skip_empty(&mut self) {
        while self.pieces.get(self.piece).is_some_and(Bytes::is_empty) {
            self.piece += 1;
        }
    }
}

impl Buf for Rope {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.rest().next().unwrap_or_default()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut n = 0;
        for (slice, rest) in slices.iter_mut().zip(self.rest()) {
            *slice = IoSlice::new(rest);
            n += 1;
        }
        n
    }

    fn advance(&mut self, count: usize) {
        debug_assert!(count <= self.remaining, "advanced past the end");
        self.remaining = self.remaining.saturating_sub(count);
        self.used += count;
        while let Some(piece) = self.pieces.get(self.piece)
            && self.used >= piece.len()
        {
            self.used -= piece.len();
            self.piece += 1;
        }
    }
}

impl RopeBody {
    /// The body of a request that has none.
    pub(crate) const EMPTY: Self = Self(None);
}

impl From<Rope> for RopeBody {
    fn from(rope: Rope) -> Self {
        Self(rope.has_remaining().then_some(rope))
    }
}

impl Body for RopeBody {
    type Data = Rope;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Rope>, Infallible>>> {
        Poll::Ready(self.0.take().map(|rope| Ok(Frame::data(rope))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |rope| rope.remaining as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(pieces: &[&'static str]) -> Rope {
        let pieces: Vec<_> = pieces.iter().map(|piece| Bytes::from(*piece)).collect();
        Rope::from(pieces)
    }

    #[test]
    fn any_step_reads_the_same_bytes() {
        for step in 1..10 {
            let mut rope = rope(&["", "ab", "", "cde", "f", ""]);
            let mut read = Vec::new();

            while rope.has_remaining() {
                let chunk = rope.chunk();
                let taken = step.min(chunk.len());
                read.extend_from_slice(chunk.get(..taken).unwrap());
                rope.advance(taken);
            }

            assert_eq!(read, b"abcdef", "step {step}");
        }
    }

    #[test]
    fn all_pieces_go_out_in_one_write() {
        let mut rope = rope(&["ab", "", "cde", "f"]);
        let mut slices = [IoSlice::new(&[]); 8];

        assert_eq!(rope.chunks_vectored(&mut slices), 3);
        rope.advance(3);

        let mut slices = [IoSlice::new(&[]); 8];
        assert_eq!(rope.chunks_vectored(&mut slices), 2);
        assert_eq!(&*slices[0], b"de");
        assert_eq!(rope.remaining(), 3);
    }

    #[test]
    fn advancing_across_pieces_lands_inside_the_right_one() {
        let mut rope = rope(&["ab", "cde", "f"]);

        rope.advance(4);

        assert_eq!(rope.chunk(), b"e");
    }

    #[test]
    fn rope_without_bytes_is_no_body() {
        let body = RopeBody::from(rope(&["", ""]));

        assert!(body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(0));
    }
}
