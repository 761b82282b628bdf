"""Bulk bytes under names: what a party must not forget and a store is too slow for."""
