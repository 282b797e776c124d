//! What the energy of a run means for its site: the energy of the facility, the carbon dioxide and the price. These are estimates
//! from averages that the site has set.

use ampere_model::digits::{energy, significant};
use ampere_model::text::printable;
use ampere_settings::SiteSettings;
use serde::{Deserialize, Serialize};

const JOULES_PER_KWH: f64 = 3.6e6;

/// Estimates for the site, from the joules of all nodes of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// The power usage effectiveness; 1 if it was not set.
    pub pue: f64,
    pub grams_per_kwh: Option<f64>,
    pub price_per_kwh: Option<f64>,
    /// The currency of prices; empty if it was not set.
    #[serde(default)]
    pub currency: String,
    /// The joules of the run, multiplied by the power usage effectiveness.
    pub facility_joules: f64,
    pub grams_co2: Option<f64>,
    pub price: Option<f64>,
}

impl Site {
    /// Returns the estimates for a run with these joules; `None` if nothing is set.
    pub fn of(settings: &SiteSettings, joules: f64) -> Option<Site> {
        let SiteSettings { pue, grams_per_kwh, price_per_kwh, currency } = settings;
        pue.or(*grams_per_kwh).or(*price_per_kwh)?;
        let site = Site {
            pue: pue.unwrap_or(1.0),
            grams_per_kwh: *grams_per_kwh,
            price_per_kwh: *price_per_kwh,
            currency: currency.clone().unwrap_or_default(),
            ..Site::default()
        };
        Some(site.with_joules(joules))
    }

    /// Returns the estimates for another number of joules.
    pub fn with_joules(mut self, joules: f64) -> Site {
        self.facility_joules = joules * self.pue;
        let kwh = self.facility_joules / JOULES_PER_KWH;
        self.grams_co2 = self.grams_per_kwh.map(|grams| grams * kwh);
        self.price = self.price_per_kwh.map(|price| price * kwh);
        self
    }

    /// Returns the estimates for people: the name of each figure, and the figure with its unit and its origin.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![(
            "energy of the facility",
            format!("~{} at a PUE of {}, estimated", energy(self.facility_joules), self.pue),
        )];
        if let Some((grams, per_kwh)) = self.grams_co2.zip(self.grams_per_kwh) {
            let (amount, unit) = if grams < 1000.0 { (grams, "g") } else { (grams / 1000.0, "kg") };
            lines.push((
                "carbon dioxide",
                format!("~{} {unit} at {per_kwh} g per kWh, estimated", significant(amount, 3)),
            ));
        }
        if let Some((price, per_kwh)) = self.price.zip(self.price_per_kwh) {
            let currency = printable(&self.currency);
            let currency = if currency.is_empty() { currency } else { format!(" {currency}") };
            lines.push((
                "price",
                format!("~{}{currency} at {per_kwh}{currency} per kWh, estimated", significant(price, 3)),
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_estimates_of_what_it_has_set() {
        assert_eq!(Site::of(&SiteSettings::default(), 1.0), None);
        let settings = SiteSettings {
            pue: Some(1.5),
            grams_per_kwh: Some(200.0),
            price_per_kwh: Some(0.5),
            currency: Some("EUR".to_owned()),
        };
        let site = Site::of(&settings, JOULES_PER_KWH).expect("a site");
        assert_eq!((site.facility_joules, site.grams_co2, site.price), (5.4e6, Some(300.0), Some(0.75)));
        let lines: Vec<String> =
            site.lines().into_iter().map(|(name, words)| format!("{name}: {words}")).collect();
        assert_eq!(
            lines,
            [
                "energy of the facility: ~5.40 MJ at a PUE of 1.5, estimated",
                "carbon dioxide: ~300 g at 200 g per kWh, estimated",
                "price: ~0.750 EUR at 0.5 EUR per kWh, estimated"
            ]
        );
        assert_eq!(site.with_joules(2.0 * JOULES_PER_KWH).price, Some(1.5));
        let price = Site::of(&SiteSettings { price_per_kwh: Some(0.5), ..SiteSettings::default() }, 7.2e6);
        let price = price.expect("a site");
        assert_eq!((price.facility_joules, price.grams_co2, price.price), (7.2e6, None, Some(1.0)));
        assert_eq!(price.lines()[1].1, "~1.00 at 0.5 per kWh, estimated");
    }
}
