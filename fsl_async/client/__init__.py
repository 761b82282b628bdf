"""A client's computations: rows into trees and hints, values into what is uploaded, answers back into rows."""
