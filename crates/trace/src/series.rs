//! The samples of a counter, what it counts, and its quantity.

use ampere_model::{Quantity, quantity_of_name, quantity_of_unit};
use otf2::{LocationRef, MetricBase, MetricInstanceRef, MetricMember, MetricMemberRef};

/// The samples of one counter: where they are recorded, which member of a class they are, and through which instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Series {
    pub location: LocationRef,
    pub member: MetricMemberRef,
    pub instance: Option<MetricInstanceRef>,
}

impl Series {
    pub fn as_numbers(self) -> (u64, u32, Option<u32>) {
        (self.location.0, self.member.0, self.instance.map(|instance| instance.0))
    }

    pub fn of_numbers((location, member, instance): (u64, u32, Option<u32>)) -> Series {
        let (member, instance) = (MetricMemberRef(member), instance.map(MetricInstanceRef));
        Series { location: LocationRef(location), member, instance }
    }
}

/// What is counted: a metric of a node or of a part of it. Several series with the same key may come from one counter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub node: String,
    pub metric: String,
    pub part: String,
}

/// Returns a metric's quantity, with the joules or watts in one unit of the raw value.
pub(crate) fn quantity_of(member: &MetricMember) -> Option<Quantity> {
    let by_unit = quantity_of_unit(&member.unit).map(|quantity| match quantity {
        Quantity::Energy(joules) => Quantity::Energy(scaled(joules, member)),
        Quantity::Power(watts) => Quantity::Power(scaled(watts, member)),
    });
    by_unit.or_else(|| quantity_of_name(&member.name))
}

/// Multiplies a value by the metric's base to the power of its exponent.
pub(crate) fn scaled(value: f64, member: &MetricMember) -> f64 {
    let base: f64 = if member.base == MetricBase::Binary { 2.0 } else { 10.0 };
    // Dividing by 10^9, which is exact, rounds once. 10^-9 itself is not exact, so multiplying by it would round twice.
    let power = base.powi(member.exponent.unsigned_abs().min(1000) as i32);
    if member.exponent < 0 { value / power } else { value * power }
}
