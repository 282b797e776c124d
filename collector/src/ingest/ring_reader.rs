//! Reads one ring, of a location or of the sampler, into the spool and to a decoder.

use ampere_ring::decoder::Decoder;
use ampere_ring::{ImpossiblePosition, Record, RingConsumer};
use ampere_trace::spool::Spool;

pub(crate) struct RingReader {
    pub ring: RingConsumer,
    pub decoder: Decoder,
    pub spool: Option<Spool>,
    /// The position up to which the records that an earlier collector has read have been decoded again. Until all have been
    /// decoded, records from the ring go only to the spool.
    pub catching_up: Option<u64>,
}

impl RingReader {
    pub fn new(ring: RingConsumer, spool: Option<Spool>) -> RingReader {
        let catching_up = spool.as_ref().filter(|_| ring.position() > 0).map(|_| 0);
        RingReader { ring, decoder: Decoder::default(), spool, catching_up }
    }

    /// Copies the records that wait in the ring and are to be decoded now to `batch`. Returns the number of records that were
    /// taken. Their slots are handed back once they are on disk ([`RingReader::hand_back`]).
    pub fn drain(&mut self, batch: &mut Vec<Record>, limit: usize) -> Result<usize, ImpossiblePosition> {
        batch.clear();
        let is_unspooled = self.spool.as_ref().is_none_or(Spool::is_cut);
        // Records that cannot be spooled stay in the ring until they can be decoded.
        if self.catching_up.is_some() && self.spool.is_some() && is_unspooled {
            return Ok(0);
        }
        let count = self.ring.copy_out(batch, limit)?;
        self.ring.take(count);
        if self.catching_up.is_some() {
            batch.clear();
        }
        if is_unspooled {
            self.ring.release_taken();
        }
        Ok(count)
    }

    /// Adds to the spool the records that were taken out of the ring and are not in the spool yet.
    pub fn spool_taken(&mut self, batch: &mut Vec<Record>) -> std::io::Result<()> {
        let Some(spool) = self.spool.as_mut().filter(|_| self.ring.released() < self.ring.position()) else {
            return Ok(());
        };
        batch.clear();
        self.ring.copy_taken(batch);
        spool.write(self.ring.released(), batch)
    }

    /// Hands back the slots of records that are on disk, or that cannot be written there, in which case the trace ends early.
    pub fn hand_back(&mut self, is_on_disk: bool) {
        if let Some(spool) = self.spool.as_mut().filter(|_| !is_on_disk) {
            spool.cut_unwritten();
            if self.catching_up.is_some() {
                return self.ring.put_back(); // the records stay in the ring until they can be decoded
            }
        }
        self.ring.release_taken();
    }

    /// Reads again the next batch of records that an earlier collector has read, up to `end`. Returns `false` if that fails.
    pub fn read_again(&mut self, batch: &mut Vec<Record>, limit: usize, end: u64) -> bool {
        batch.clear();
        let (Some(at), Some(spool)) = (self.catching_up.take(), &mut self.spool) else { return false };
        let Ok(count) = spool.read_back(at, end, limit, batch) else { return false };
        let reached = at + count as u64;
        let is_more = reached < end || self.ring.released() < self.ring.position();
        self.catching_up = (is_more && (count > 0 || reached == end)).then_some(reached);
        count > 0 || reached == end
    }
}
