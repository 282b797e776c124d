//! The prices that a view charged per tick, in pieces of time, if they are recorded.

use super::View;
use super::active::Price;
use super::consumer::Consumer;
use crate::cpu_time::{CpuTime, CpuTimes};
use crate::hint::Hint;
use ampere_model::Timestamp;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// A time in which the share clock advanced evenly and all ticks had the same price.
#[derive(Clone, Debug)]
struct Piece {
    start: Timestamp,
    end: Timestamp,
    /// The advance of the share clock per tick.
    rate: f64,
    price: Price,
    /// The prices of the consumers, if they are not all the same.
    of_consumers: Option<Arc<[Price]>>,
}

/// The recent prices of a view.
#[derive(Clone, Debug, Default)]
pub(crate) struct PriceLog {
    pieces: Vec<Piece>,
    /// The pieces of the open interval: start, end and rate.
    open: Vec<(Timestamp, Timestamp, f64)>,
    /// By group: the times at which the number of its running members changed, and the new number.
    running: Vec<VecDeque<(Timestamp, u32)>>,
    /// For each pair of samples with the same timestamp: the time, and the joules of each consumer that ran just before it.
    at_once: VecDeque<(Timestamp, Vec<(u32, f64)>)>,
    hint: Hint,
}

impl PriceLog {
    /// Adds a piece of the open interval.
    pub fn add(&mut self, start: Timestamp, end: Timestamp, rate: f64) {
        if start < end && rate > 0.0 {
            self.open.push((start, end, rate));
        }
    }

    pub fn set_running(&mut self, group: u32, time: Timestamp, running: u32) {
        let at = group as usize;
        self.running.resize_with(self.running.len().max(at + 1), VecDeque::new);
        self.running[at].push_back((time, running));
    }

    /// Sets the prices of the open interval.
    fn set_prices(&mut self, price: Price, of_consumers: Option<&Arc<[Price]>>) {
        let piece =
            |(start, end, rate)| Piece { start, end, rate, price, of_consumers: of_consumers.cloned() };
        self.pieces.extend(self.open.drain(..).map(piece));
    }

    /// Replaces each of these ranges of pieces by one piece.
    fn replace(&mut self, parts: &[(Range<usize>, Piece)]) {
        let mut pieces = Vec::new();
        let mut done = 0;
        for (old, new) in parts {
            pieces.extend_from_slice(&self.pieces[done..old.start]);
            pieces.push(new.clone());
            done = old.end;
        }
        pieces.extend_from_slice(&self.pieces[done..]);
        self.pieces = pieces;
        let part_of = |time: Timestamp| {
            let next = parts.partition_point(|(_, new)| new.end < time);
            parts.get(next).filter(|(_, new)| new.start < time).map(|_| next)
        };
        // The new pieces contain these joules.
        self.at_once.retain(|(time, _)| part_of(*time).is_none());
        for changes in &mut self.running {
            let times: Vec<Option<usize>> = changes.iter().map(|(time, _)| part_of(*time)).collect();
            let mut at = 0;
            changes.retain(|_| {
                at += 1;
                times[at - 1].is_none() || times.get(at) != times.get(at - 1)
            });
        }
    }

    /// Returns the ticks that one member of a group is due from `start` to `end`: a share of those that the group is due.
    fn ticks_of_member(&self, group: u32, start: Timestamp, end: Timestamp) -> f64 {
        let Some(changes) = self.running.get(group as usize) else { return (end - start) as f64 };
        let first = changes.partition_point(|(time, _)| *time <= start).saturating_sub(1);
        let mut at = changes.range(first..).copied().peekable();
        let mut ticks = 0.0;
        while let Some((from, running)) = at.next() {
            let until = at.peek().map_or(end, |(time, _)| *time).min(end);
            ticks += until.saturating_sub(from.max(start)) as f64 / f64::from(running.max(1));
            if until >= end {
                break;
            }
        }
        ticks
    }
}

impl View {
    /// Records the price of the interval that ends, in joules per tick, if it is the same for all consumers.
    pub(super) fn record_price(&mut self, price: Price) {
        if let Some(log) = &mut self.prices {
            log.set_prices(price, None);
        }
    }

    /// Records the prices of the interval that ends, one for each consumer.
    pub(super) fn record_prices(&mut self, prices: impl Iterator<Item = Price>) {
        if let Some(log) = &mut self.prices {
            let prices: Arc<[Price]> = prices.collect();
            log.set_prices(Price::default(), Some(&prices));
        }
    }

    /// Records the joules that were charged at `time` to a consumer that ran just before that time.
    pub(super) fn record_at_once(&mut self, time: Timestamp, consumer: u32, joules: f64) {
        let Some(log) = &mut self.prices else { return };
        match log.at_once.back_mut().filter(|(last, _)| *last == time) {
            Some((_, charges)) => charges.push((consumer, joules)),
            None => log.at_once.push_back((time, vec![(consumer, joules)])),
        }
    }

    /// Starts a new interval, of which nothing is recorded yet.
    pub(super) fn begin_recorded_interval(&mut self) {
        if let Some(log) = &mut self.prices {
            log.open.clear();
        }
    }

    pub fn forget_prices_before(&mut self, time: Timestamp) {
        let Some(log) = &mut self.prices else { return };
        let old = log.pieces.partition_point(|piece| piece.end <= time);
        log.pieces.drain(..old);
        let old = log.at_once.partition_point(|(at, _)| *at <= time);
        log.at_once.drain(..old);
        for changes in &mut log.running {
            let next = changes.partition_point(|(at, _)| *at <= time);
            changes.drain(..next.saturating_sub(1));
        }
    }

    pub fn prices_kept(&self) -> usize {
        let kept = |log: &PriceLog| {
            let running: usize = log.running.iter().map(VecDeque::len).sum();
            log.pieces.len() + log.at_once.len() + running
        };
        self.prices.as_deref().map_or(0, kept)
    }

    /// Merges the pieces in each of these parts of time into one, which has a price for each consumer and needs no CPU times.
    /// Shortens each part to the time that was merged.
    pub fn shorten_prices(&mut self, parts: &mut [Range<Timestamp>], cpu_times: &CpuTimes) {
        let Some(log) = &self.prices else { return };
        let pieces_of = |part: &mut Range<Timestamp>| {
            let first = log.pieces.partition_point(|piece| piece.start < part.start);
            let last = log.pieces.partition_point(|piece| piece.end <= part.end);
            let before = first.checked_sub(1).and_then(|before| log.pieces.get(before));
            let after = log.pieces.get(last);
            part.start = before.map_or(part.start, |piece| piece.end.max(part.start));
            part.end = after.map_or(part.end, |piece| piece.start.min(part.end));
            first..last
        };
        let pieces: Vec<_> = parts.iter_mut().map(pieces_of).filter(|pieces| !pieces.is_empty()).collect();
        let parts: Vec<_> =
            pieces.into_iter().map(|some| (some.clone(), self.as_one(some, cpu_times))).collect();
        if let Some(log) = &mut self.prices {
            log.replace(&parts);
        }
    }

    /// Returns one piece in which each consumer is charged the same as in all of these pieces.
    fn as_one(&self, pieces: Range<usize>, cpu_times: &CpuTimes) -> Piece {
        let own = self
            .prices
            .as_ref()
            .and_then(|log| Some((log.pieces.get(pieces.start)?.start, log.pieces.get(pieces.end - 1)?.end)));
        let (start, end) = own.unwrap_or_default();
        let price = |(consumer, of): (u32, &Consumer)| {
            let joules = self.joules_during(consumer, start, end, cpu_times.of(of.location));
            Price { open: joules / (end - start) as f64, ..Price::default() }
        };
        let prices = (0..).zip(&self.consumers.all).map(price).collect();
        Piece { start, end, rate: 0.0, price: Price::default(), of_consumers: Some(prices) }
    }

    /// Returns the joules that a consumer with an open frame was charged from `start` to `end`, as far as they are recorded.
    pub fn joules_during(
        &self,
        consumer: u32,
        start: Timestamp,
        end: Timestamp,
        cpu: Option<&CpuTime>,
    ) -> f64 {
        let Some(log) = &self.prices else { return 0.0 };
        let group = self.consumers.all[consumer as usize].group;
        let first = log.hint.partition_point(&log.pieces, |piece| piece.end <= start);
        let pieces = log.pieces[first..].iter().take_while(|piece| piece.start < end);
        let of_piece = |piece: &Piece| {
            let (start, end) = (piece.start.max(start), piece.end.min(end));
            let of_consumer = piece.of_consumers.as_ref().and_then(|all| all.get(consumer as usize).copied());
            let price = of_consumer.unwrap_or(piece.price);
            let ticks = (end - start) as f64;
            let share = group.map_or(ticks, |group| log.ticks_of_member(group, start, end)) * piece.rate;
            let active = match cpu {
                _ if price.active == 0.0 => 0.0,
                Some(cpu) => cpu.at(end).since(cpu.at(start)),
                None => ticks,
            };
            share * price.share + active * price.active + ticks * price.open
        };
        let joules: f64 = pieces.map(of_piece).sum();
        if log.at_once.is_empty() {
            return joules;
        }
        let first = log.at_once.partition_point(|(time, _)| *time <= start);
        let at_once = log.at_once.range(first..).take_while(|(time, _)| *time <= end);
        let own = at_once.flat_map(|(_, charges)| charges).filter(|(other, _)| *other == consumer);
        own.fold(joules, |sum, (_, joules)| sum + joules)
    }
}
