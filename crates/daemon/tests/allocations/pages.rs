//! Requests as Linux lays them out: data in pages, each with a descriptor of its own.

use transom_frontend::{
    fuse::Exchange,
    queue::{Completion, Queue},
};
use transom_wire::header::OutHeader;

const PAGE: usize = 4096;

/// A queue whose requests have a descriptor for each page.
pub(crate) struct Pages(pub(crate) Queue);

impl Exchange for Pages {
    fn exchange(&mut self, readable: &[&[u8]], room: usize) -> anyhow::Result<Completion> {
        let sent: Vec<&[u8]> = readable.iter().flat_map(|piece| piece.chunks(PAGE)).collect();
        let header_room = room.min(size_of::<OutHeader>());
        let mut rooms = vec![header_room; usize::from(header_room > 0)];
        let data_room = room - header_room;
        rooms.extend((0..data_room).step_by(PAGE).map(|from| PAGE.min(data_room - from)));
        let token = self.0.submit(&sent, &rooms).ok_or_else(|| anyhow::anyhow!("the ring is full"))?;
        self.0.wait(token)
    }
}
