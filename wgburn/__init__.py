"""wgburn"""
